"""Zip files: the rows that their folder would give, whatever is inside, and no byte more in memory than declared."""

import io
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
from small_datasets import CPU
from sources import encoded, everything

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import row_key
from viewkit.pipelines.pack.raw import LABEL, PATH
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pack.stage import PackStage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.row import Reject, Row
from viewkit.shards.verify import verify


def write_zip(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_a_zip_gives_the_bytes_and_classes_that_its_folder_would(tmp_path):
    members = {f"pets/{name}/{i}.png": encoded(i) for name in ("cat", "dog") for i in range(4)}
    write_zip(tmp_path / "all.zip", members)
    for name, data in members.items():
        path = tmp_path / "folder" / name.removeprefix("pets/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    config = PackConfig(labels="folders", rows_per_shard=3)
    zipped, plain = (
        {row.fields[PATH].decode().removeprefix("all.zip/pets/"): row.fields for row in everything(source)}
        for source in (open_source(str(tmp_path / where), config) for where in ("all.zip", "folder"))
    )
    assert zipped.keys() == plain.keys()
    for name, fields in zipped.items():
        assert {**fields, PATH: b""} == {**plain[name], PATH: b""}
    assert {fields[LABEL]: fields["cls"] for fields in zipped.values()} == {b"cat": b"0", b"dog": b"1"}


def test_a_folder_of_zips_is_one_source_and_what_is_no_image_is_counted(tmp_path):
    write_zip(tmp_path / "1.zip", {"a.jpg": encoded(1, "JPEG"), "notes.txt": b"x", "a.mask.png": encoded(2)})
    write_zip(tmp_path / "2.zip", {"a.jpg": encoded(3, "JPEG"), "__MACOSX/._a.jpg": b"x", ".b/c.jpg": b"x"})
    (tmp_path / "readme.md").write_text("x")
    source = open_source(str(tmp_path), PackConfig())
    assert {row.key for row in everything(source)} == {row_key("1.zip/a.jpg"), row_key("2.zip/a.jpg")}
    assert source.notes == (
        "1 other files in the source were left out",
        "4 members of the zip files are no images and were left out",
    )


def test_a_source_of_zips_is_pickled_without_open_files_and_packs(tmp_path):
    write_zip(tmp_path / "a.zip", {f"{i}.png": encoded(i) for i in range(8)}, zipfile.ZIP_STORED)
    source = open_source(str(tmp_path / "a.zip"), PackConfig(rows_per_shard=3))
    assert everything(pickle.loads(pickle.dumps(source))) == everything(source)  # noqa: S301
    dataset = Dataset(tmp_path / "data")
    run_stage(PackStage(str(tmp_path / "a.zip")), PackConfig(rows_per_shard=3), dataset, CPU)
    assert dataset.column("images").num_rows == 8 and not [each for each in verify(dataset) if each.problem]


def forged(size: int) -> bytes:
    """A zip whose member says that it has `size` bytes and inflates to a hundred megabytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(10**8))
    data = bytearray(stream.getvalue())
    for mark, at in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        data[data.index(mark) + at : data.index(mark) + at + 4] = struct.pack("<I", size)
    return bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "reason"), [(1000, "undecodable"), (10**8, "too_many_bytes")])
def test_a_bomb_is_a_reject_and_never_takes_more_than_it_declares(size, reason, tmp_path):
    import tracemalloc

    (tmp_path / "bomb.zip").write_bytes(forged(size))
    source = open_source(str(tmp_path / "bomb.zip"), PackConfig(max_file_mb=50))
    tracemalloc.start()
    (row,) = everything(source)
    assert isinstance(row, Reject) and row.reason == reason and tracemalloc.get_traced_memory()[1] < 8 * 10**6
    tracemalloc.stop()


def damaged_member() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.png", b"-" * 50)
    return stream.getvalue().replace(b"-" * 50, b"-" * 49 + b"+")


def encrypted() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.png", encoded())
    data = bytearray(stream.getvalue())
    data[data.index(b"PK\3\4") + 6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    return bytes(data)


def rare_method() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.png", encoded())
    return stream.getvalue()


@pytest.mark.parametrize(
    ("make", "reason", "detail"),
    [
        (damaged_member, "undecodable", "damaged in the zip file: Bad CRC"),
        (encrypted, "unreadable", "it is encrypted"),
        (rare_method, "unreadable", "zip compression 14"),
    ],
)
def test_members_that_cannot_be_read_are_rejects(make, reason, detail, tmp_path):
    (tmp_path / "a.zip").write_bytes(make())
    (row,) = everything(open_source(str(tmp_path / "a.zip"), PackConfig()))
    assert isinstance(row, Reject) and row.reason == reason and f"a.zip/a.png: {detail}" in row.detail


def test_images_beside_the_class_folders_have_no_label(tmp_path):
    write_zip(tmp_path / "a.zip", {"cat/1.png": encoded(), "2.png": encoded()})
    rows = everything(open_source(str(tmp_path / "a.zip"), PackConfig(labels="folders")))
    assert sorted(row.reason for row in rows if isinstance(row, Reject)) == ["no_label"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is cut or damaged, or no zip file"),
        (b"not a zip file", "is cut or damaged, or no zip file"),
        (lambda whole: whole[:-30], "is cut or damaged, or no zip file"),
        (lambda _: damaged_member().replace(b"a.png", b"a.txt"), "holds no image; zip files with images are needed"),
    ],
)
def test_a_zip_that_cannot_be_read_is_one_line(data, message, tmp_path):
    path = write_zip(tmp_path / "photos.zip", {"a.png": encoded()})
    path.write_bytes(data(path.read_bytes()) if callable(data) else data)
    with pytest.raises(DataError, match=message) as caught:
        open_source(str(path), PackConfig())
    assert "'photos.zip'" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_an_error(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.png", encoded(1))
        archive.writestr("a.png", encoded(2))
    with pytest.raises(DataError, match="holds two members of one name"):
        open_source(str(tmp_path / "a.zip"), PackConfig())


@pytest.mark.slow
def test_no_flipped_byte_of_a_zip_is_more_than_a_reject_or_one_line(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"a.png": encoded(1), "b.png": encoded(2)})
    whole = path.read_bytes()
    for at in range(0, len(whole), 3):
        data = bytearray(whole)
        data[at] ^= 0xA5
        path.write_bytes(data)
        try:
            rows = everything(open_source(str(path), PackConfig()))
        except DataError as error:
            assert "\n" not in str(error)
        else:
            assert all(isinstance(row, Row | Reject) for row in rows)
