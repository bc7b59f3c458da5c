"""Artifacts in a store: published as shards are, brought when read, and unfinished work for whoever goes on."""

import time

import pytest

from viewkit.pipelines.engine.contract import Run, Silent
from viewkit.shards.artifact import IDENTITY, RECEIPT, finish_artifact
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, RefusedError
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.removal import remove
from viewkit.shards.stores.client import Client
from viewkit.shards.stores.mirror import Mirror
from viewkit.shards.stores.mounts import MOUNTED
from viewkit.shards.stores.url import parse_url
from viewkit.shards.verify import verify

TOY = Identity("toy", 1, {}, {}, {})


def begin(dataset: Dataset, files: dict[str, bytes]):
    folder = dataset.path / "toy"
    folder.mkdir(exist_ok=True)
    write_identity(folder / IDENTITY, TOY)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def machine(place: str, name: str, monkeypatch, tmp_path) -> Dataset:
    MOUNTED.clear()
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / name))
    return Dataset(place)


def test_files_are_brought_when_they_are_read_and_damage_is_named(place, monkeypatch, tmp_path):
    folder = begin(Dataset(place), {"a.bin": b"a", "deep/b.bin": b"bb", "metrics.jsonl": b"times"})
    finish_artifact(folder, TOY.digest, {"loss": 1.0}, ["metrics.jsonl"])
    names = {IDENTITY, RECEIPT, "a.bin", "deep/b.bin", "metrics.jsonl"}
    assert set(Client(parse_url(place)).list()) == {f"toy/{name}" for name in names}
    artifact = machine(place, "b", monkeypatch, tmp_path).artifact("toy")
    assert artifact.is_complete and artifact.numbers == {"loss": 1.0} and not (artifact.folder / "a.bin").exists()
    assert artifact.path("deep/b.bin").read_bytes() == b"bb"
    assert (artifact.whole_folder() / "a.bin").read_bytes() == b"a"
    Client(parse_url(place)).put("toy/a.bin", b"x")
    (problem,) = [finding.problem for finding in verify(Dataset(place)) if finding.problem]
    assert "toy/a.bin: missing or damaged in the store" in problem


def test_of_two_machines_that_finish_one_artifact_the_first_counts(place, monkeypatch, tmp_path):
    first = begin(machine(place, "a", monkeypatch, tmp_path), {"weights": b"one"})
    other = begin(machine(place, "b", monkeypatch, tmp_path), {"weights": b"two"})
    finish_artifact(other, TOY.digest, {}, [])
    MOUNTED[first.parent] = Mirror(parse_url(place), first.parent)  # the one that was believed dead
    finish_artifact(first, TOY.digest, {}, [])
    assert set(Client(parse_url(place)).list()) == {f"toy/{name}" for name in (IDENTITY, RECEIPT, "weights")}
    for name in ("a", "b", "c"):
        dataset = machine(place, name, monkeypatch, tmp_path)
        assert dataset.artifact("toy").path("weights").read_bytes() == b"two"


def test_unfinished_work_is_found_as_it_was_saved_and_gone_when_all_is_done(place, monkeypatch, tmp_path):
    folder = begin(machine(place, "a", monkeypatch, tmp_path), {"state": b"1", "made/again": b"large"})
    MOUNTED[folder.parent].artifacts.keep_unfinished(folder, ["made"])
    (folder / "state").write_bytes(b"2")
    assert MOUNTED[folder.parent].artifacts.bring_unfinished(folder)
    assert (folder / "state").read_bytes() == b"2"  # nobody saved since: this machine's own is newer
    other = machine(place, "b", monkeypatch, tmp_path).path / "toy"
    assert MOUNTED[other.parent].artifacts.bring_unfinished(other)
    assert (other / "state").read_bytes() == b"1" and not (other / "made").exists()
    (other / "state").write_bytes(b"3")
    MOUNTED[other.parent].artifacts.keep_unfinished(other, [])
    folder = machine(place, "a", monkeypatch, tmp_path).path / "toy"
    assert MOUNTED[folder.parent].artifacts.bring_unfinished(folder) and (folder / "state").read_bytes() == b"3"
    finish_artifact(folder, TOY.digest, {}, [], scratch=["made"])
    assert set(Client(parse_url(place)).list()) == {f"toy/{name}" for name in (IDENTITY, RECEIPT, "state")}
    assert not MOUNTED[folder.parent].artifacts.bring_unfinished(folder)


@pytest.mark.parametrize("then", ["nothing", "another", "the same"])
def test_work_of_an_artifact_that_was_removed_elsewhere_is_not_gone_on_with(place, monkeypatch, tmp_path, then):
    folder = begin(machine(place, "a", monkeypatch, tmp_path), {"state": b"1", "made/again": b"large"})
    nested = folder / "eval"
    nested.mkdir()
    write_identity(nested / IDENTITY, TOY)
    (nested / "results").write_bytes(b"kept")
    MOUNTED[folder.parent].artifacts.keep_unfinished(folder, [])
    client = Client(parse_url(place))
    client.delete(["toy/unfinished.tar", f"toy/{IDENTITY}"])
    if then != "nothing":
        elsewhere = machine(place, "b", monkeypatch, tmp_path).path / "toy"
        elsewhere.mkdir(exist_ok=True)
        identity = TOY if then == "the same" else Identity("toy", 2, {}, {}, {})
        write_identity(elsewhere / IDENTITY, identity, {"threads": "3"})
    time.sleep(0.15)  # what was written a moment ago may be another process's
    machine(place, "a", monkeypatch, tmp_path)
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    kept = {"eval", f"eval/{IDENTITY}", "eval/results"}
    assert (
        left
        == kept
        | {
            "nothing": set(),
            "another": {IDENTITY},
            "the same": {IDENTITY, "state", "made", "made/again"},
        }[then]
    )
    notes = [path.name for path in (folder.parents[1] / ".store").iterdir() if path.name.endswith(".unfinished")]
    assert bool(notes) == (then == "the same")


def test_saving_takes_a_twentieth_of_the_time_at_most(place, monkeypatch):
    folder, now = begin(Dataset(place), {"state": b"1"}), [0.0]
    files, sent = MOUNTED[folder.parent].artifacts, []
    monkeypatch.setattr("viewkit.shards.stores.artifacts.time.monotonic", lambda: now[0])
    monkeypatch.setattr(
        files._mirror.client, "put", lambda *_: sent.append(now[0]) or now.__setitem__(0, now[0] + 3) or "etag"
    )
    for second in range(0, 200, 10):
        now[0] = max(now[0], float(second))
        files.keep_unfinished(folder, [])
    assert sent == [0.0, 60.0, 120.0, 180.0]


def test_removing_leaves_nothing_in_the_store_and_a_stranger_is_refused(place):
    dataset = Dataset(place)
    folder = begin(dataset, {"weights": b"one"})
    finish_artifact(folder, TOY.digest, {}, [])
    client = Client(parse_url(place))
    client.put("toy/mine.txt", b"a user's own")
    with pytest.raises(RefusedError, match=r"mine\.txt was not written by viewkit"):
        remove(dataset, ["toy"], lambda stage: ["weights"])
    client.delete(["toy/mine.txt"])
    remove(dataset, ["toy"], lambda stage: ["weights"])
    assert client.list() == {} and not folder.exists()


def test_work_goes_on_when_the_store_does_not_take_what_is_unfinished(place, monkeypatch, tmp_path):
    class Said(Silent):
        def __init__(self):
            self.lines = []

        def message(self, text):
            self.lines.append(text)

    dataset, said = machine(place, "a", monkeypatch, tmp_path), Said()
    folder = begin(dataset, {"state": b"1"})

    def refuse(*_):
        raise DataError("s3://bucket: does not answer")

    monkeypatch.setattr(MOUNTED[dataset.path].artifacts, "keep_unfinished", refuse)
    Run(dataset, folder, "toy", progress=said).keep()
    assert said.lines == ["toy: not kept in the store this time (s3://bucket: does not answer)"]
