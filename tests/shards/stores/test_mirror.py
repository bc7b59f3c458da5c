"""A dataset in a store: what is written there is what a local one has, and one of several writers is first."""

import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import combinations

import pytest
from stores import ENVIRONMENT, FAULTS, SECRETS, Proxy

from viewkit.pipelines.engine.shard_actor import Orders, ShardActor
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.receipt import ready_path
from viewkit.shards.row import Reject, Row
from viewkit.shards.stores.cache import OWN, SHARDS, make_room
from viewkit.shards.stores.client import AT_ONCE, Client, NotThere
from viewkit.shards.stores.environment import open_store
from viewkit.shards.stores.mirror import Mirror
from viewkit.shards.stores.mounts import MOUNTED, in_words
from viewkit.shards.stores.url import parse_url
from viewkit.shards.verify import verify
from viewkit.shards.writer import ShardWriter, publish, settle

IDENTITY = Identity("pack", 1, {}, {}, {"shards": 2, "rows": 5})


def write(dataset: Dataset, identity: Identity = IDENTITY, word: bytes = b"one") -> None:
    folder = dataset.path / "images"
    folder.mkdir(parents=True, exist_ok=True)
    write_identity(folder / "column.json", identity)
    for shard, outcomes in enumerate(
        ([Row("a", {"bin": word * 50}), Reject("b", "unlucky")], [Row(key, {"bin": b"2"}) for key in "cde"])
    ):
        with ShardWriter(folder, shard, identity.digest) as writer:
            for outcome in outcomes:
                writer.write(outcome)
            writer.finish()


def elsewhere(place: str, monkeypatch, tmp_path) -> Dataset:
    """The dataset as another machine sees it."""
    MOUNTED.clear()
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / "elsewhere"))
    return Dataset(place)


def contents(dataset: Dataset, name: str = "images") -> dict[str, bytes]:
    column = dataset.column(name)
    return {key: column.fields(place)["bin"] for place, key in enumerate(column.keys())}


def test_the_store_has_the_very_files_of_a_local_dataset(place, tmp_path):
    here, there = Dataset(tmp_path / "local"), Dataset(place)
    for dataset in (here, there):
        write(dataset)
    client = Client(parse_url(place))
    files = {path.relative_to(here.path).as_posix(): path for path in here.path.rglob("*") if path.is_file()}
    assert set(client.list()) == set(files) and len(files) == 5
    assert all(client.get(key)[0] == path.read_bytes() for key, path in files.items())


def test_another_machine_reads_the_same_by_rows_and_by_shards_and_finds_it_intact(place, monkeypatch, tmp_path):
    write(Dataset(place))
    there = elsewhere(place, monkeypatch, tmp_path)
    assert contents(there) == {"a": b"one" * 50, "c": b"2", "d": b"2", "e": b"2"}
    column = there.column("images")
    assert [[row.key for row in column.rows(shard)] for shard in range(2)] == [["a"], ["c", "d", "e"]]
    assert column.rejects["b"].reason == "unlucky"
    findings = list(verify(there))
    assert len(findings) == 4 and not any(finding.problem for finding in findings)


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


@pytest.mark.slow
def test_what_changed_in_the_store_is_seen_at_the_next_opening_and_never_mixed_with_the_old(
    place, monkeypatch, tmp_path
):
    write(Dataset(place))
    other = elsewhere(place, monkeypatch, tmp_path)
    assert contents(other)["a"] == b"one" * 50
    list(other.column("images").rows(0))  # now its cache has the whole shard
    client = Client(parse_url(place))
    client.delete(["images/000000.json"])
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / "third"))
    write(Dataset(place), word=b"two")  # of the same size
    other = elsewhere(place, monkeypatch, tmp_path)
    assert contents(other)["a"] == b"two" * 50 and next(other.column("images").rows(0)).fields["bin"] == b"two" * 50
    client.delete(list(client.list()))
    assert Dataset(place).columns() == []


def test_a_dataset_that_is_sent_to_a_process_of_this_or_another_machine_is_read_there(place, tmp_path):
    write(Dataset(place))
    sent = pickle.dumps(Dataset(place).column("images"))
    for moved in (False, True):
        MOUNTED.clear()
        if moved:  # another machine has nothing in its cache
            (tmp_path / "cache").rename(tmp_path / "of the first")
        column = pickle.loads(sent)  # noqa: S301 our own
        assert column.fields(0) == {"bin": b"one" * 50} and [row.key for row in column.rows(1)] == ["c", "d", "e"]
        assert (MOUNTED[column.path.parent].listing is None) != moved


def test_a_node_of_a_cluster_looks_at_the_store_by_itself_or_says_why_it_cannot(place, monkeypatch, tmp_path):
    write(Dataset(place))
    claim = Dataset(place).path / "images" / "column.json"
    mirror, digest = pickle.dumps(MOUNTED[claim.parents[1]]), sha256(claim.read_bytes()).hexdigest()
    orders = Orders(b"", 0, str(claim), digest, str(tmp_path), uses_torch=False, seen_s=0.0, mirror=mirror)
    MOUNTED.clear()
    (tmp_path / "cache").rename(tmp_path / "of the driver")
    assert ShardActor(orders).look() is None and claim.is_file()
    MOUNTED.clear()
    (tmp_path / "cache").rename(tmp_path / "of another node")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("VIEWKIT_STORE_PATIENCE_S", "0.1")
    assert "the store does not answer" in (ShardActor(orders).look() or "")


def test_of_16_writers_with_unlike_bytes_one_is_first_and_all_read_it(place):
    dataset = Dataset(place)
    folder = dataset.path / "images"
    folder.mkdir()
    write_identity(folder / "column.json", Identity("pack", 1, {}, {}, {"shards": 1, "rows": 1}))

    def race(number: int) -> str:
        with ShardWriter(folder, 0, IDENTITY.digest) as writer:
            writer.write(Row("a", {"bin": b"%02d" % number}))
            return writer.finish().sha256

    with ThreadPoolExecutor(16) as pool:
        won = set(pool.map(race, range(16)))
    keys = Client(parse_url(place)).list("images")
    assert len(won) == 1 and set(keys) == {f"images/{name}" for name in ("column.json", "000000.json", "000000.tar")}


def test_a_tar_that_another_process_of_this_machine_has_published_need_not_be_sent(place):
    folder = Dataset(place).path / "images"
    folder.mkdir()
    identity = Identity("pack", 1, {}, {}, {"shards": 1, "rows": 1})
    write_identity(folder / "column.json", identity)
    write_one = ShardWriter(folder, 0, identity.digest)
    write_one.write(Row("a", {"bin": b"one"}))
    receipt = write_one.finish()  # by the one, while the other has just written the same bytes
    gone, tars = ready_path(folder, 0, receipt.sha256), MOUNTED[folder.parent].tars
    assert not gone.exists()
    tars.upload(gone, receipt.bytes)
    assert write_one.commit(receipt)
    publish(folder, receipt)
    assert set(Client(parse_url(place)).list()) == {
        f"images/{name}" for name in ("column.json", "000000.json", "000000.tar")
    }
    assert next(Column(folder).rows(0)).fields == {"bin": b"one"}
    with pytest.raises(DataError, match=r"000001\.tar\..*: was deleted before it was sent; run the same command again"):
        tars.upload(ready_path(folder, 1, receipt.sha256), receipt.bytes)


STEPS = 4


def writer_steps(folder, word: bytes):
    """What `ShardWriter.finish` does, a step at a time."""
    writer = ShardWriter(folder, 0, IDENTITY.digest)
    writer.write(Row("a", {"bin": word}))
    yield
    receipt = writer.seal()
    yield
    first = writer.commit(receipt)
    yield
    publish(folder, receipt) if first else writer.give_way(receipt)
    yield


@pytest.mark.slow
@pytest.mark.parametrize("steps_of_first", range(STEPS + 1))
def test_in_every_order_of_two_machines_the_first_receipt_counts(place, monkeypatch, tmp_path, steps_of_first):
    identity = Identity("pack", 1, {}, {}, {"shards": 1, "rows": 1})
    monkeypatch.setattr(sys.modules[__name__], "IDENTITY", identity)
    total = steps_of_first + STEPS
    for number, chosen in enumerate(combinations(range(total), steps_of_first)):
        url, folders = f"{place}/{number}", []
        for machine in "ab":  # two caches of the same place, in one process
            root = tmp_path / machine / str(number)
            MOUNTED[root] = Mirror(parse_url(url), root)
            (root / "images").mkdir(parents=True)
            folders.append(root / "images")
            write_identity(folders[-1] / "column.json", identity)
        writers = [writer_steps(folder, word) for folder, word in zip(folders, (b"one", b"two"), strict=True)]
        client, said, seen = Client(parse_url(url)), None, None
        for step in range(total):
            next(writers[0 if step in chosen else 1])
            before, seen = seen, client.list()
            if "images/000000.json" in seen and seen != before:
                said = said or client.get("images/000000.json")
                assert client.get("images/000000.json") == said
                reader = Mirror(parse_url(url), tmp_path / "reader" / f"{number}.{step}")
                MOUNTED[reader.root] = reader
                reader.refresh()
                column = Column(reader.root / "images")
                assert next(column.rows(0)).fields == column.fields(0)
        settle(folders[1], [0], identity.digest)
        assert set(client.list()) == {"images/column.json", "images/000000.json", "images/000000.tar"}


def test_a_claim_of_another_machine_counts(place, monkeypatch, tmp_path):
    here = Dataset(place)
    (here.path / "images").mkdir()
    other = elsewhere(place, monkeypatch, tmp_path)
    write(other)
    MOUNTED[here.path] = Mirror(parse_url(place), here.path)  # it has not looked since
    assert not write_identity(
        here.path / "images" / "column.json", Identity("pack", 2, {}, {}, {"shards": 1, "rows": 1})
    )
    assert Column(here.path / "images").identity == IDENTITY


def test_a_failed_run_deletes_its_own_claim_and_never_the_same_one_of_another_machine(place, monkeypatch, tmp_path):
    claims, mirrors = [], []
    for machine in "cd":  # both start the same stage: the claims are equal to the byte
        monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / machine))
        MOUNTED.clear()
        claims.append(Dataset(place).path / "images" / "column.json")
        assert write_identity(claims[-1], IDENTITY)
        mirrors.append(MOUNTED[claims[-1].parents[1]])
    mirrors[1].drop_claim(claims[1])
    assert set(Client(parse_url(place)).list()) == {"images/column.json"}
    mirrors[0].drop_claim(claims[0])
    assert Client(parse_url(place)).list() == {}


def test_a_store_that_ignores_conditions_is_refused_at_the_start(moto, place, monkeypatch):
    with Proxy(moto.port, ignores_conditions=True).serving() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        dataset = Dataset(place)
        with pytest.raises(ConfigError, match="the store ignores the condition If-None-Match"):
            dataset.begin_writing()
        assert Client(parse_url(place)).list() == {}  # nothing of the probe is left
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{moto.port}")
    MOUNTED.clear()
    Dataset(place).begin_writing()
    assert Client(parse_url(place)).list() == {}


@pytest.mark.parametrize(("one_in", "datasets"), [(6, 1), (10, 12)])
@pytest.mark.slow
def test_while_requests_fail_the_store_gets_the_same_bytes(moto, place, monkeypatch, tmp_path, one_in, datasets):
    write(Dataset(tmp_path / "local"))
    proxy = Proxy(moto.port, one_in=one_in)
    with proxy.serving() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for number in range(datasets):
            write(Dataset(f"{place}/{number}"))
            MOUNTED.clear()
            assert contents(Dataset(f"{place}/{number}"))["a"] == b"one" * 50
    assert proxy.counted["faults"] >= 2 and (datasets == 1 or all(proxy.counted[fault] for fault in FAULTS))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{moto.port}")
    files = {path.relative_to(tmp_path / "local").as_posix(): path for path in (tmp_path / "local").rglob("*.*")}
    client = Client(parse_url(place))
    for number in range(datasets):
        assert {key.partition("/")[2] for key in client.list(str(number))} == set(files)
        assert all(client.get(f"{number}/{key}")[0] == path.read_bytes() for key, path in files.items())


def test_damage_in_the_store_is_found_and_named(place, monkeypatch, tmp_path):
    write(Dataset(place))
    client = Client(parse_url(place))
    raw = bytearray(client.get("images/000000.tar")[0])
    raw[600] ^= 1
    client.put("images/000000.tar", bytes(raw))
    there = elsewhere(place, monkeypatch, tmp_path)
    (problem,) = [finding.problem for finding in verify(there) if finding.problem]
    assert in_words(problem).startswith(f"{place}/images/000000.tar: damaged in the store, its bytes do not match")
    with pytest.raises(DataError, match="damaged"):
        there.column("images").fields(0)
    client.delete(["images/000001.tar"])
    with pytest.raises(DataError, match=r"000001\.tar: is missing; delete 000001\.json beside it"):
        assert Dataset(place).column("images").index


def test_errors_are_one_line_without_a_word_of_the_server_or_the_credentials(moto, place, monkeypatch):
    monkeypatch.setenv("VIEWKIT_STORE_PATIENCE_S", "0.3")
    with pytest.raises(DataError) as caught:
        Dataset("s3://nobodys/set")
    assert str(caught.value) == "s3://nobodys/set: there is no bucket 'nobodys'; create it, or correct the name"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(DataError) as caught:
        Dataset(place)
    said = str(caught.value)
    assert said.startswith(
        f"{place}: the store does not answer, for 0.3 s (VIEWKIT_STORE_PATIENCE_S); check the network"
    )
    assert "\n" not in said and not any(secret in said for secret in SECRETS)
    assert caught.value.__suppress_context__


def test_without_credentials_or_obstore_the_line_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("VIEWKIT_STORE_PATIENCE_S", "0.2")
    for name in (*ENVIRONMENT, "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"s3://b/x: no credentials in the environment.*set AWS_ACCESS_KEY_ID"):
        Dataset("s3://b/x")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"s3://b/x: stores take the package obstore; pip install '.\[cloud\]'"):
        open_store(parse_url("s3://b/x"))


@pytest.mark.parametrize(("name", "value"), [("VIEWKIT_CACHE_GB", "0"), ("VIEWKIT_STORE_PATIENCE_S", "soon")])
def test_limits_that_are_no_numbers_are_refused(place, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{name} is '{value}'"):
        Dataset(place)


def test_a_forked_process_is_told_to_be_spawned(place, monkeypatch):
    client = Client(parse_url(place))
    client.list()
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(ConfigError, match="connections do not survive that; start worker processes with 'spawn'"):
        client.list()


def test_a_store_s_objects_are_read_written_once_copied_and_deleted(place):
    client = Client(parse_url(place))
    assert client.create("a", b"first")[0] == b"first" == client.create("a", b"second")[0]
    client.copy("a", "b")
    client.delete(["a", "a"])
    assert set(client.list()) == {"b"} and client.head("b").size == 5 and client.get_range("b", 1, 3) == b"irs"
    with pytest.raises(NotThere):
        client.get("a")


def test_large_objects_come_back_whole_from_several_ranges(place, monkeypatch, tmp_path):
    client, content = Client(parse_url(place)), bytes(range(256)) * 20
    client.put("a", content)
    monkeypatch.setattr("viewkit.shards.stores.client.RANGE_BYTES", 1000)
    client.fetch("a", len(content), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == content


def test_after_a_range_that_fails_no_more_are_asked_for(place, monkeypatch, tmp_path):
    client, asked = Client(parse_url(place)), []

    def get_range(key: str, start: int, size: int) -> bytes:
        asked.append(start)
        if start >= 3:
            raise NotThere(key)
        return b"1"

    monkeypatch.setattr("viewkit.shards.stores.client.RANGE_BYTES", 1)
    monkeypatch.setattr(client, "get_range", get_range)
    with pytest.raises(NotThere):
        client.fetch("a", 1000, tmp_path / "a")
    assert len(asked) <= 3 + AT_ONCE


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


def test_one_place_is_mounted_once_under_its_own_name(place):
    first, second = Dataset(place), Dataset(place + "/")
    assert first.path == second.path and len(MOUNTED) == 1 and first.path.name == "set"


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


def test_credentials_are_in_no_file_of_the_cache_or_the_store(place, tmp_path):
    write(Dataset(place))
    client = Client(parse_url(place))
    files = [path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    held = [*files, *(client.get(key)[0] for key in client.list())]
    assert len(held) > 8 and not any(secret.encode() in each for each in held for secret in SECRETS)
