"""WebDataset tars: the samples that webdataset finds, and an error for every tar that is not whole."""

import io
import json
import tarfile
from pathlib import Path

import pytest
import webdataset
from PIL import Image

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import row_key
from viewkit.pipelines.pack.raw import PATH
from viewkit.pipelines.pack.source import PackSources, open_source
from viewkit.pipelines.pack.stage import pack_row
from viewkit.shards.codecs import decode_json
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Reject, Row


def image(format: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (20, 20), (10, 20, 30)).save(stream, format)
    return stream.getvalue()


def write_tar(path: Path, members: list[tuple[str, bytes]], format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def everything(source: PackSources) -> dict[str, Row | Reject]:
    rows = {}
    for shard in range(source.num_shards):
        found = list(source.rows(shard))
        assert [row.key for row in found] == list(source.keys(shard))
        rows |= {row.key: row for row in found}
    assert len(rows) == source.num_rows
    return rows


LONG = "a folder/" + "n" * 150


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_samples_are_grouped_as_webdataset_groups_them(format: int, tmp_path: Path) -> None:
    members = [
        ("./0001.jpg", image("JPEG")),
        ("./0001.cls", b"3"),
        ("0002.CLS", b"4"),
        ("0002.png", image()),
        ("0002.mask.png", image()),
        (f"{LONG}.jpg", image("JPEG")),
        ("dir.with.dots/0001.png", image()),
        ("写真.png", image()),
    ]
    path = write_tar(tmp_path / "a.tar", members, format)
    expected = {
        sample["__key__"].removeprefix("./"): {k: v for k, v in sample.items() if not k.startswith("__")}
        for sample in webdataset.WebDataset(str(path), shardshuffle=False)
    }
    rows = everything(open_source(str(path), PackConfig(rows_per_shard=2)))
    assert set(rows) == {row_key(f"a.tar/{key}") for key in expected}
    for key, fields in expected.items():
        row = rows[row_key(f"a.tar/{key}")]
        assert isinstance(row, Row)
        assert {name: data for name, data in row.fields.items() if name != PATH} == fields


def test_labels_metadata_and_other_members_survive(tmp_path: Path) -> None:
    mask, metadata = image(), {"objects": [{"box": [1, 2.5, None]}], "text": "ü"}
    members = [
        ("a.jpg", image("JPEG")),
        ("a.cls", b" 7\n"),
        ("a.json", json.dumps(metadata).encode()),
        ("a.mask.png", mask),
        ("a.txt", b"a caption"),
    ]
    source = open_source(str(write_tar(tmp_path / "a.tar", members)), PackConfig())
    (raw,) = everything(source).values()
    assert isinstance(raw, Row)
    row = pack_row(raw, PackConfig())
    assert isinstance(row, Row)
    assert set(row.fields) == {"jpg", "cls", "json", "mask.png", "txt"}
    assert row.fields["cls"] == b"7" and row.fields["mask.png"] == mask and row.fields["txt"] == b"a caption"
    facts = decode_json(row.fields["json"])
    assert facts == {
        "source": "a.tar/a.jpg",
        "format": "JPEG",
        "mode": "RGB",
        "size": [20, 20],
        "done": [],
        "metadata": metadata,
    }


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([("a.cls", b"1"), ("a.txt", b"x")], "no_image"),
        ([("a.b.jpg", image("JPEG"))], "no_image"),
        ([("a.jpg", image("JPEG")), ("a.png", image())], "several_images"),
        ([("a.jpg", image("JPEG")), ("a.cls", b"cat")], "bad_label"),
        ([("a.jpg", image("JPEG")), ("a.cls", b"-1")], "bad_label"),
        ([("a.jpg", image("JPEG")), ("a.cls", b"")], "bad_label"),
        ([("a.jpg", image("JPEG")), ("a.json", b"{'x': 1}")], "bad_json"),
        ([("a.jpg", image("JPEG")), ("a.json", b"[1e999]")], "bad_json"),
        ([("a.jpg", image("JPEG")), ("a.json", b"[" * 100_000)], "bad_json"),
        ([("a.jpg", image("JPEG")), ("a.o d\nd", b"x")], "bad_member"),
        ([("a.jpg", b"")], "empty"),
    ],
)
def test_samples_that_cannot_be_used_are_rejects(members: list[tuple[str, bytes]], reason: str, tmp_path: Path) -> None:
    fine = [("z.jpg", image("JPEG"))]
    config = PackConfig()
    source = open_source(str(write_tar(tmp_path / "t.tar", members + fine)), config)
    found = [row if isinstance(row, Reject) else pack_row(row, config) for row in everything(source).values()]
    (reject,) = [row for row in found if isinstance(row, Reject)]
    assert reject.reason == reason and reject.detail.startswith("t.tar/a") and reject.key == row_key("t.tar/a")
    assert len(found) == 2 and "\n" not in reject.detail


def test_numbers_that_json_does_not_know_become_null(tmp_path: Path) -> None:
    members = [("a.jpg", image("JPEG")), ("a.json", b'{"x": NaN, "y": -Infinity}')]
    source = open_source(str(write_tar(tmp_path / "t.tar", members)), PackConfig())
    (raw,) = everything(source).values()
    assert isinstance(raw, Row)
    row = pack_row(raw, PackConfig())
    assert isinstance(row, Row) and decode_json(row.fields["json"])["metadata"] == {"x": None, "y": None}


def test_a_folder_of_tars_is_one_source(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    write_tar(tmp_path / "0.tar", [("a.jpg", image("JPEG"))])
    write_tar(tmp_path / "more" / "1.tar", [("a.jpg", image("JPEG")), ("b.png", image())])
    rows = everything(open_source(str(tmp_path), PackConfig(rows_per_shard=2)))
    assert set(rows) == {row_key("0.tar/a"), row_key("more/1.tar/a"), row_key("more/1.tar/b")}


WHOLE = [(f"{i}.png", image()) for i in range(6)]


def test_every_cut_of_a_tar_is_an_error_that_names_it(tmp_path: Path) -> None:
    data = write_tar(tmp_path / "whole.tar", WHOLE).read_bytes()
    path = tmp_path / "broken.tar"
    last = 6 * 2 * 512  # a header and a block of data each; then only zeros
    for length in [*range(0, last, 256), last]:
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match=r"'broken.tar' is cut or damaged"):
            open_source(str(path), PackConfig())


def test_a_flipped_bit_in_a_header_is_an_error(tmp_path: Path) -> None:
    data = write_tar(tmp_path / "whole.tar", WHOLE, tarfile.USTAR_FORMAT).read_bytes()
    path = tmp_path / "broken.tar"
    for at in [at for at in range(512) if at % 5 == 0 and at not in (150, 155)]:  # these end the checksum, unread
        flipped = bytearray(data)
        flipped[3 * 1024 + at] ^= 0x04
        path.write_bytes(bytes(flipped))
        with pytest.raises(DataError, match=r"'broken.tar' is cut or damaged"):
            open_source(str(path), PackConfig())


def test_concatenated_tars_are_refused_rather_than_half_read(tmp_path: Path) -> None:
    data = write_tar(tmp_path / "whole.tar", WHOLE).read_bytes()
    (tmp_path / "two.tar").write_bytes(data + data)
    with pytest.raises(DataError, match=r"'two.tar' goes on after its end mark"):
        open_source(str(tmp_path / "two.tar"), PackConfig())


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.png", b""), ("b.png", b""), ("a.cls", b"1")], "holds the sample 'a' twice"),
        ([("a.png", b""), ("a.png", b"")], "holds the member 'a.png' twice"),
        ([("README", b"x")], "hold no sample"),
        ([], "hold no sample"),
    ],
)
def test_tars_that_are_no_webdataset_are_errors(members: list[tuple[str, bytes]], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        open_source(str(write_tar(tmp_path / "t.tar", members)), PackConfig())


def test_links_hidden_files_and_names_without_extension_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in [("dir", tarfile.DIRTYPE), ("link.png", tarfile.SYMTYPE), ("._a.png", tarfile.REGTYPE)]:
            info = tarfile.TarInfo(name)
            info.type = kind
            tar.addfile(info)
        info = tarfile.TarInfo("a.png")
        info.size = len(image())
        tar.addfile(info, io.BytesIO(image()))
    source = open_source(str(path), PackConfig())
    assert source.num_rows == 1
    assert source.notes == ("2 members of the tars belong to no sample and were left out",)


def test_class_folders_make_no_sense_for_tars(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="labels 'folders' needs a folder of images"):
        open_source(str(write_tar(tmp_path / "t.tar", WHOLE)), PackConfig(labels="folders"))


def test_a_tar_that_shrinks_after_listing_is_an_error(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "t.tar", WHOLE)
    source = open_source(str(path), PackConfig())
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DataError, match="has become shorter"):
        everything(source)
