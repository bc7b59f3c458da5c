"""The spool keeps the rows of a cut shard, and nothing that is not whole."""

import pytest

from viewkit.shards.row import Reject, Row
from viewkit.shards.spool import Spool, remove_spools

ROWS = [
    Row("a", {"jpg": b"\xff\xd8 first", "json": b"{}\n"}),
    Reject("b", "near_constant", "standard deviation 0.00 grey levels"),
    Row("c", {"1.jpg": b"", "jpg": bytes(range(256))}),
]


def fill(folder, rows=ROWS, identity="one"):
    with Spool(folder, 3, identity) as spool:
        for row in rows:
            spool.append(row)
    return spool.path


def kept(folder, identity="one"):
    with Spool(folder, 3, identity) as spool:
        return list(spool.kept.values())


def test_what_was_appended_is_found_again(tmp_path):
    path = fill(tmp_path)
    assert path.name == "000003.spool"
    assert kept(tmp_path) == ROWS


def test_a_second_run_appends_to_the_first(tmp_path):
    fill(tmp_path, ROWS[:1])
    fill(tmp_path, ROWS)
    assert kept(tmp_path) == ROWS


def test_rows_of_another_identity_are_dropped(tmp_path):
    fill(tmp_path)
    assert kept(tmp_path, "two") == []
    assert kept(tmp_path, "one") == []


def test_every_cut_leaves_the_whole_records_before_it(tmp_path):
    path = fill(tmp_path)
    content = path.read_bytes()
    found = []
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        found.append(len(kept(tmp_path)))
        assert kept(tmp_path) == ROWS[: found[-1]]
    assert found == sorted(found)
    assert set(found) == {0, 1, 2, 3}


@pytest.mark.parametrize("place", [5, 60, 100, -1])
def test_a_flipped_byte_drops_its_record_and_what_follows(tmp_path, place):
    path = fill(tmp_path)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))
    left = kept(tmp_path)
    assert left == ROWS[: len(left)]
    assert len(left) < len(ROWS)
    fill(tmp_path, ROWS)
    assert kept(tmp_path) == ROWS


def test_a_file_that_is_no_spool_is_started_over(tmp_path):
    (tmp_path / "000003.spool").write_bytes(b"\xff" * 1000)
    fill(tmp_path, ROWS[:1])
    assert kept(tmp_path) == ROWS[:1]


def test_a_finished_shard_keeps_no_spool(tmp_path):
    fill(tmp_path)
    with Spool(tmp_path, 3, "one") as spool:
        spool.remove()
    fill(tmp_path)
    remove_spools(tmp_path, [2, 3])
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_of_the_shard_keeps_nothing_and_leaves_the_file_alone(tmp_path):
    with Spool(tmp_path, 3, "one") as first:
        first.append(ROWS[0])
        with Spool(tmp_path, 3, "one") as second:
            assert second.kept == {}
            second.append(ROWS[2])
            second.remove()
        first.append(ROWS[1])
    assert kept(tmp_path) == ROWS[:2]


def test_two_headers_of_writers_without_locks_are_no_row(tmp_path):
    header = fill(tmp_path, []).read_bytes()
    whole = fill(tmp_path, ROWS).read_bytes()
    (tmp_path / "000003.spool").write_bytes(header + whole)
    assert kept(tmp_path) == ROWS
