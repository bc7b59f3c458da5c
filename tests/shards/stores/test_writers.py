"""Several writers of one column in a store: one is first, and no order of steps leaves anything else."""

from itertools import combinations

import pytest
from stored_column import contents, race, write
from stores import FAULTS, Proxy

from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.receipt import ready_path
from viewkit.shards.row import Row
from viewkit.shards.stores.client import Client
from viewkit.shards.stores.mirror import Mirror
from viewkit.shards.stores.mounts import MOUNTED
from viewkit.shards.stores.url import parse_url
from viewkit.shards.writer import ShardWriter, publish, settle


def test_of_16_writers_with_unlike_bytes_one_is_first_and_all_read_it(place):
    assert len(race(place)) == 1
    names = ("column.json", "000000.json", "000000.tar")
    assert set(Client(parse_url(place)).list("images")) == {f"images/{name}" for name in names}


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


def writer_steps(folder, identity: Identity, word: bytes):
    """What `ShardWriter.finish` does, a step at a time."""
    writer = ShardWriter(folder, 0, identity.digest)
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
def test_in_every_order_of_two_machines_the_first_receipt_counts(place, tmp_path, steps_of_first):
    identity = Identity("pack", 1, {}, {}, {"shards": 1, "rows": 1})
    total = steps_of_first + STEPS
    for number, chosen in enumerate(combinations(range(total), steps_of_first)):
        url, folders = f"{place}/{number}", []
        for machine in "ab":  # two caches of the same place, in one process
            root = tmp_path / machine / str(number)
            MOUNTED[root] = Mirror(parse_url(url), root)
            (root / "images").mkdir(parents=True)
            folders.append(root / "images")
            write_identity(folders[-1] / "column.json", identity)
        writers = [writer_steps(folder, identity, word) for folder, word in zip(folders, (b"one", b"two"), strict=True)]
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
