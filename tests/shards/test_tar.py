import io
import tarfile

import pytest

from viewkit.shards.errors import DataError
from viewkit.shards.tar import END, header, row_bytes


def test_tarfile_reads_the_members_that_row_bytes_gives():
    raw, places = row_bytes("a_1", {"jpg": b"x" * 700, "cls": b"3"})
    with tarfile.open(fileobj=io.BytesIO(raw + END)) as archive:
        members = {member.name: archive.extractfile(member).read() for member in archive}
    assert members == {"a_1.cls": b"3", "a_1.jpg": b"x" * 700}
    assert {name: raw[start : start + size] for name, (start, size) in places.items()} == {
        "cls": b"3",
        "jpg": b"x" * 700,
    }


def test_a_header_equals_the_one_that_tarfile_writes():
    info = tarfile.TarInfo("key.jpg")
    info.size = 12345
    assert header("key.jpg", 12345) == info.tobuf(tarfile.USTAR_FORMAT)


def test_row_bytes_do_not_depend_on_the_order_of_the_fields():
    assert row_bytes("k", {"a": b"1", "b": b"2"})[0] == row_bytes("k", {"b": b"2", "a": b"1"})[0]


def test_a_name_that_tar_cannot_hold_is_an_error_that_names_it():
    with pytest.raises(DataError, match=r"k+\.jpg: a member's name is 104 bytes long, and tar holds 100"):
        header("k" * 100 + ".jpg", 1)
