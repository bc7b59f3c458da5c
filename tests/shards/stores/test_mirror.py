"""A dataset in a store: what is written there is what a local one has, and other machines read the same."""

import pickle
from hashlib import sha256

import pytest
from stored_column import contents, elsewhere, write
from stores import SECRETS

from viewkit.pipelines.engine.shard_actor import Orders, ShardActor
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.stores.client import Client
from viewkit.shards.stores.mounts import MOUNTED, in_words
from viewkit.shards.stores.url import parse_url
from viewkit.shards.verify import verify


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


def test_one_place_is_mounted_once_under_its_own_name(place):
    first, second = Dataset(place), Dataset(place + "/")
    assert first.path == second.path and len(MOUNTED) == 1 and first.path.name == "set"


def test_credentials_are_in_no_file_of_the_cache_or_the_store(place, tmp_path):
    write(Dataset(place))
    client = Client(parse_url(place))
    files = [path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    held = [*files, *(client.get(key)[0] for key in client.list())]
    assert len(held) > 8 and not any(secret.encode() in each for each in held for secret in SECRETS)
