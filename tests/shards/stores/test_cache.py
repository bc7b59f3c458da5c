"""The cache: what is kept in it, how long, and what is asked of the store until it is there."""

import os
import subprocess
import sys
import time

import pytest
from stored_column import elsewhere, write

from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.stores.cache import OWN, SHARDS, make_room
from viewkit.shards.stores.mounts import MOUNTED


def test_rows_are_asked_for_alone_until_the_cache_has_their_shard(place, monkeypatch, tmp_path):
    write(Dataset(place))
    monkeypatch.setenv("VIEWKIT_CACHE_GB", "1e-6")  # no room for the column: nothing is fetched ahead
    column = elsewhere(place, monkeypatch, tmp_path).column("images")
    mirror = MOUNTED[column.path.parent]
    assert column.fields(0) == {"bin": b"one" * 50} and not mirror.tars.is_whole(column.path, 0)
    monkeypatch.setenv("VIEWKIT_CACHE_GB", "1")
    list(column.rows(0))
    assert mirror.tars.is_whole(column.path, 0)
    mirror.client.delete(["images/000000.tar"])
    assert column.fields(0) == {"bin": b"one" * 50}


def test_the_cache_keeps_its_limit_and_lets_the_longest_unused_go(place, monkeypatch, tmp_path):
    write(Dataset(place))
    column = elsewhere(place, monkeypatch, tmp_path).column("images")
    mirror, sizes = MOUNTED[column.path.parent], [column.receipt(shard).bytes for shard in range(2)]
    monkeypatch.setenv("VIEWKIT_CACHE_GB", str(max(sizes) / 1e9))
    for shard in (0, 1, 0, 1):
        assert [row.key for row in column.rows(shard)] == [["a"], ["c", "d", "e"]][shard]
        assert [mirror.tars.is_whole(column.path, each) for each in range(2)] == [shard == 0, shard == 1]
    monkeypatch.setenv("VIEWKIT_CACHE_GB", "1e-7")
    with pytest.raises(ConfigError, match=r"VIEWKIT_CACHE_GB allows 100 bytes, and .*000000.* alone takes"):
        list(column.rows(0))


def test_what_was_used_a_moment_ago_or_is_being_fetched_stays_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("VIEWKIT_CACHE_GB", "1e-6")  # 1,000 bytes
    folder = tmp_path / "place" / OWN / SHARDS / "images"
    folder.mkdir(parents=True)

    def left(size: int, **seconds_ago: int) -> set[str]:
        for name, ago in seconds_ago.items():
            path = folder / name.replace("_", ".")
            path.write_bytes(bytes(300))
            os.utime(path, (time.time() - ago,) * 2)
        make_room(size, folder / "keep")
        return {path.name for path in folder.iterdir()}

    assert left(400, old=200, older=300) == {"old", "older"}
    assert left(500, old=200, older=300) == {"old"}
    assert left(600, new=30, newer=20, old=200) == {"new", "newer"}  # 1,200 are within a quarter more
    assert left(700, new=30, newer=20) == {"newer"}
    assert left(1000, a_part=5, newer=20, keep=500) == {"a.part", "keep"}
    assert left(1000, a_part=500, keep=500) == {"keep"}


def test_a_shard_that_the_cache_lets_go_before_it_is_opened_is_brought_again(place, monkeypatch, tmp_path):
    write(Dataset(place))
    column = elsewhere(place, monkeypatch, tmp_path).column("images")
    tars, lost = MOUNTED[column.path.parent].tars, []
    whole = tars.whole

    def lets_go(folder, receipt):
        path = whole(folder, receipt)
        if receipt.shard not in lost:
            lost.append(receipt.shard)
            path.unlink()
        return path

    monkeypatch.setattr(tars, "whole", lets_go)
    assert [row.key for row in column.rows(1)] == ["c", "d", "e"] and lost == [1]
    monkeypatch.setattr(tars, "row", lambda *_: None)  # so that the row is read from the whole shard
    monkeypatch.setattr(tars, "fetch_ahead", lambda *_: None)
    assert column.fields(0) == {"bin": b"one" * 50} and lost == [1, 0]
    monkeypatch.setattr(tars, "whole", lambda *_: tmp_path / "gone")
    with pytest.raises(DataError, match="gone: there is no such file"):
        list(column.rows(0))


def test_a_column_that_fits_is_fetched_ahead_while_its_first_row_is_read_alone(place, monkeypatch, tmp_path):
    write(Dataset(place))
    column = elsewhere(place, monkeypatch, tmp_path).column("images")
    mirror = MOUNTED[column.path.parent]
    assert column.fields(1) == {"bin": b"2"}
    end = time.monotonic() + 10
    while not all(mirror.tars.is_whole(column.path, shard) for shard in range(2)) and time.monotonic() < end:
        time.sleep(0.01)
    mirror.client.delete(["images/000000.tar", "images/000001.tar"])
    assert column.fields(0) == {"bin": b"one" * 50}


LEAVES = """
import sys, threading, time
from pathlib import Path
from viewkit.shards.stores import client

def get_range(key, start, size):
    print(start, flush=True)
    begun.set()
    time.sleep(0.005)
    return b"1"

begun, client.RANGE_BYTES = threading.Event(), 1
opened = client.Client(None)
opened.get_range = get_range
threading.Thread(target=opened.fetch, args=("a", 2000, Path(sys.argv[1])), daemon=True).start()
begun.wait()
time.sleep(0.2)
"""


def test_a_program_that_ends_does_not_wait_for_the_shard_that_is_fetched_ahead(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LEAVES, tmp_path / "a"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    assert 1 <= len(done.stdout.splitlines()) < 1000
