"""A folder of images: everything is seen once, nothing is followed twice, and what cannot be read is a reject."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sources import everything

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import row_key
from viewkit.pipelines.pack.listing import Texts, list_folder, span
from viewkit.pipelines.pack.raw import LABEL, PATH
from viewkit.pipelines.pack.source import PackSources, open_source
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Reject, Row

ODD_NAMES = [
    "<img src=x onerror=alert(1)>.png",
    "quote'\"double & amp;.png",
    "line\u2028separator\\n.png",
    "new\nline.png",
    "写真 — フォト 🐱.png",
    "a.b.c.PNG",
    "x" * 200 + ".png",
    os.fsdecode(b"caf\xe9.png"),
]


def write(root: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (number, 1, 2)).save(path, "PNG")


def paths(source: PackSources) -> set[str]:
    found = everything(source)
    return {row.fields[PATH].decode("utf-8", "surrogateescape") for row in found if isinstance(row, Row)}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse some of these names")
def test_odd_names_are_read_and_keyed(tmp_path: Path) -> None:
    write(tmp_path, *ODD_NAMES)
    source = open_source(str(tmp_path), PackConfig(rows_per_shard=3))
    assert paths(source) == set(ODD_NAMES) and source.num_shards == 3
    assert {row.key for row in everything(source)} == {row_key(name) for name in ODD_NAMES}


def test_only_images_are_listed_and_the_others_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "a/b/c.JPEG", "d.webp", ".hidden.png", ".cache/e.png")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "labels.csv").write_text("x")
    source = open_source(str(tmp_path), PackConfig())
    assert paths(source) == {"a/b/c.JPEG", "d.webp"}
    assert source.notes == ("2 other files in the source were left out",)


def test_the_order_and_the_digest_do_not_depend_on_the_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, *[f"{i % 3}/{i}.png" for i in range(40)])
    config = PackConfig(rows_per_shard=16)
    source = open_source(str(tmp_path), config)
    scandir = os.scandir

    class Backwards:
        def __init__(self, path: str) -> None:
            with scandir(path) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self.entries

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Backwards)
    again = open_source(str(tmp_path), config)
    assert again.digest == source.digest
    assert [again.keys(shard) for shard in range(3)] == [source.keys(shard) for shard in range(3)]


def test_the_digest_notices_a_new_a_renamed_and_a_resized_file(tmp_path: Path) -> None:
    write(tmp_path, "a.png", "b.png")
    digests = {open_source(str(tmp_path), PackConfig()).digest}
    write(tmp_path, "c.png")
    digests.add(open_source(str(tmp_path), PackConfig()).digest)
    (tmp_path / "c.png").rename(tmp_path / "d.png")
    digests.add(open_source(str(tmp_path), PackConfig()).digest)
    with (tmp_path / "d.png").open("ab") as file:
        file.write(b"x")
    digests.add(open_source(str(tmp_path), PackConfig()).digest)
    assert len(digests) == 4


def test_folders_of_the_first_level_are_classes(tmp_path: Path) -> None:
    write(tmp_path, "dog/x/1.png", "cat/1.png", "cat/2.png", "Zebra/1.png", "top.png")
    (tmp_path / "empty").mkdir()
    rows = everything(open_source(str(tmp_path), PackConfig(labels="folders")))
    labels = {row.fields[PATH]: (row.fields["cls"], row.fields[LABEL]) for row in rows if isinstance(row, Row)}
    assert labels == {
        b"Zebra/1.png": (b"0", b"Zebra"),
        b"cat/1.png": (b"1", b"cat"),
        b"cat/2.png": (b"1", b"cat"),
        b"dog/x/1.png": (b"2", b"dog"),
    }
    (reject,) = [row for row in rows if isinstance(row, Reject)]
    assert reject.reason == "no_label" and reject.detail.startswith("top.png: ")


def test_without_labels_no_row_has_a_class(tmp_path: Path) -> None:
    write(tmp_path, "dog/1.png", "top.png")
    rows = everything(open_source(str(tmp_path), PackConfig()))
    assert all(isinstance(row, Row) and "cls" not in row.fields for row in rows)


def test_links_are_followed_but_never_in_circles(tmp_path: Path) -> None:
    write(tmp_path / "root", "a/1.png")
    write(tmp_path / "elsewhere", "2.png")
    (tmp_path / "root" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root" / "a" / "up").symlink_to(tmp_path / "root")
    (tmp_path / "root" / "self").symlink_to(tmp_path / "root")
    assert paths(open_source(str(tmp_path / "root"), PackConfig())) == {"a/1.png", "linked/2.png"}


def test_what_cannot_be_read_is_a_reject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "fine.png", "gone.png", "secret.png")
    (tmp_path / "nowhere.png").symlink_to(tmp_path / "absent.png")
    source = open_source(str(tmp_path), PackConfig())
    (tmp_path / "gone.png").unlink()
    opened = os.open

    def refuse_secret(path: str, *arguments: int) -> int:
        if str(path).endswith("secret.png"):  # the tests may run as root, whom no permission stops
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", refuse_secret)
    rejects = {row.detail: row.reason for row in everything(source) if isinstance(row, Reject)}
    assert rejects == {
        "gone.png: No such file or directory": "unreadable",
        "nowhere.png: No such file or directory": "unreadable",
        "secret.png: Permission denied": "unreadable",
    }


def test_a_pipe_named_like_an_image_does_not_stop_the_run(tmp_path: Path) -> None:
    write(tmp_path, "a.png", "b.png")
    os.mkfifo(tmp_path / "pipe.png")
    source = open_source(str(tmp_path), PackConfig())
    assert source.num_rows == 2
    (tmp_path / "b.png").unlink()
    os.mkfifo(tmp_path / "b.png")
    assert [row.reason for row in everything(source) if isinstance(row, Reject)] == ["unreadable"]


def test_files_above_the_limit_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, "a.png")
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(1_000_001)
    rows = everything(open_source(str(tmp_path), PackConfig(max_file_mb=1)))
    assert [row.reason for row in rows if isinstance(row, Reject)] == ["too_many_bytes"]


def test_the_dataset_itself_is_not_packed(tmp_path: Path) -> None:
    write(tmp_path, "a.png", "out/images/b.png")
    source = open_source(str(tmp_path), PackConfig(), leave_out=tmp_path / "out")
    assert paths(source) == {"a.png"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: root.rmdir(), "does not exist"),
        (lambda root: None, "is empty"),
        (lambda root: (root / "a.txt").write_text("x"), "holds 1 files, none of them an image"),
        (lambda root: (root / "a.tar.gz").write_text("x"), "'a.tar.gz' is cut or damaged, or not a tar"),
    ],
)
def test_a_source_without_images_is_one_clear_line(make, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    root = tmp_path / "photos"
    root.mkdir()
    make(root)
    with pytest.raises(DataError, match=message) as caught:
        open_source(str(root), PackConfig())
    assert "\n" not in str(caught.value)


def test_a_single_image_file_is_no_source(tmp_path: Path) -> None:
    write(tmp_path, "a.png")
    with pytest.raises(DataError, match="is a file; a folder of images"):
        open_source(str(tmp_path / "a.png"), PackConfig())


def test_an_unreadable_folder_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.png", "locked/b.png")
    scandir = os.scandir

    def refuse_locked(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse_locked)
    with pytest.raises(DataError, match="'locked' cannot be read"):
        list_folder(tmp_path)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"rows_per_shard": 0}, "rows_per_shard is 0"),
        ({"min_side_px": 0}, "min_side_px is 0"),
        ({"max_pixels": 10**9}, "max_pixels is 1000000000"),
        ({"max_file_mb": 0}, "max_file_mb is 0"),
        ({"min_side_px": 1000, "max_pixels": 1000}, "min_side_px 1000"),
    ],
)
def test_impossible_options_are_named(options: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        PackConfig(**options)  # type: ignore[arg-type]


def test_listings_of_many_files_stay_small() -> None:
    names = [f"n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG" for i in range(20_000)]
    texts = Texts(names)
    assert texts[7] == names[7] and texts[-1] == names[-1] and texts[3:6] == names[3:6] and len(texts) == 20_000
    assert len(pickle.dumps(texts)) < 45 * 20_000
    with pytest.raises(IndexError):
        texts[20_000]


def test_spans_cover_every_row_once() -> None:
    spans = [span(shard, 4, 10) for shard in range(3)]
    assert [i for one in spans for i in one] == list(range(10))
    with pytest.raises(IndexError):
        span(3, 4, 10)


def test_classes_are_found_in_any_number_of_folders(tmp_path: Path) -> None:
    names = [f"{name}/1.png" for name in np.random.default_rng(0).permutation(30)]
    write(tmp_path, *names)
    rows = everything(open_source(str(tmp_path), PackConfig(labels="folders")))
    expected = sorted(str(i) for i in range(30))
    for row in rows:
        assert isinstance(row, Row)
        assert expected[int(row.fields["cls"])] == row.fields[LABEL].decode()


def test_masks_beside_their_images_are_no_images_and_this_is_said(tmp_path: Path) -> None:
    write(tmp_path, "a.jpg.png", "x/1.png", "x/1.mask.png", "x/2.mask.png", "3.png", "3.seg.png", "3.crop.png")
    source = open_source(str(tmp_path), PackConfig())
    assert paths(source) == {"a.jpg.png", "x/1.png", "x/2.mask.png", "3.png", "3.crop.png"}
    assert source.notes[0] == "2 other files in the source were left out"
    assert source.notes[1].startswith("2 of them are images that belong to another one, such as 3.seg.png; tars keep")
