"""A column of two shards, written into a store, and as another machine sees it; what differs from a local dataset."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Reject, Row
from viewkit.shards.stores.client import Client
from viewkit.shards.stores.mounts import MOUNTED
from viewkit.shards.stores.url import parse_url
from viewkit.shards.writer import ShardWriter

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


def race(place: str, writers: int = 16) -> set[str]:
    """So many writers of one shard at once, with unlike bytes; digests of the tars that they take for the shard's."""
    folder, identity = Dataset(place).path / "images", Identity("pack", 1, {}, {}, {"shards": 1, "rows": 1})
    folder.mkdir(parents=True)
    write_identity(folder / "column.json", identity)

    def write_one(number: int) -> str:
        with ShardWriter(folder, 0, identity.digest) as writer:
            writer.write(Row("a", {"bin": b"%02d" % number}))
            return writer.finish().sha256

    with ThreadPoolExecutor(writers) as pool:
        return set(pool.map(write_one, range(writers)))


def elsewhere(place: str, monkeypatch, tmp_path) -> Dataset:
    """The dataset as another machine sees it."""
    MOUNTED.clear()
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / "elsewhere"))
    return Dataset(place)


def contents(dataset: Dataset, name: str = "images") -> dict[str, bytes]:
    column = dataset.column(name)
    return {key: column.fields(place)["bin"] for place, key in enumerate(column.keys())}


def differing(place: str, local: Path, but: tuple[str, ...] = ()) -> list[str]:
    """Keys that are only here or there, and those whose bytes differ; `but` of the files of these names."""
    client = Client(parse_url(place))
    there = {key for key in client.list() if not key.startswith("urls/")}
    here = {
        path.relative_to(local).as_posix()
        for path in local.rglob("*")
        if path.is_file() and not path.relative_to(local).parts[0].startswith(".")
    }
    same = {key for key in there & here if client.get(key)[0] == (local / key).read_bytes()}
    return sorted(key for key in there | here if key not in same and key.rpartition("/")[2] not in but)


def upload(folder: Path, place: str, leave_out: Sequence[str] = ()) -> str:
    """Put the files of a local folder there, but for hidden ones and some folders in it; returns `place`."""
    client = Client(parse_url(place))
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and parts[0] not in leave_out and not parts[0].startswith("."):
            client.put("/".join(parts), path.read_bytes())
    return place
