"""Claims of columns and artifacts in a store: the first counts, and none is withdrawn, since others may rely on it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import ClassVar

import pytest
from small_datasets import CPU
from stored_column import IDENTITY, elsewhere, write
from toy_stages import NumbersConfig, NumbersStage, TotalConfig

from viewkit.pipelines.engine.contract import FitStage
from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, RefusedError
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.stores.client import Client
from viewkit.shards.stores.mirror import Mirror
from viewkit.shards.stores.mounts import MOUNTED
from viewkit.shards.stores.url import parse_url
from viewkit.shards.verify import verify

CONFIG = NumbersConfig(rows=12, rows_per_shard=6)


class Rows(NumbersStage):
    """at_work: called before the first row is there."""

    def __init__(self, at_work: Callable[[], None]) -> None:
        super().__init__()
        self.at_work = at_work

    def prepare(self, config, run):
        plain = super().prepare(config, run)

        def transform(rows):
            self.at_work()
            yield from plain(rows)

        return transform


class Files(FitStage[TotalConfig]):
    name = writes = "toy"
    holds: ClassVar[Mapping[str, str]] = {"a.txt": "a word"}

    def __init__(self, at_work: Callable[[], None]) -> None:
        self.at_work = at_work

    def reads(self, config):
        return ()

    def fit(self, config, run):
        self.at_work()
        (run.folder / "a.txt").write_text("a")
        return {}


def machine(place: str, name: str, monkeypatch, tmp_path) -> Dataset:
    """A dataset with a cache of its own, beside those of the other machines."""
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / name))
    return Dataset(place)


def refuse() -> None:
    raise DataError("the disk is full")


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


@pytest.mark.parametrize(
    "claims_first", ["the one that fails", pytest.param("the one that goes on", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("stage", "config"), [(Rows, CONFIG), (Files, TotalConfig())])
def test_of_two_machines_under_equal_claims_one_may_fail(place, monkeypatch, tmp_path, stage, config, claims_first):
    a, b = (machine(place, name, monkeypatch, tmp_path) for name in "ab")
    at_work, failed = Event(), Event()

    def wait() -> None:
        at_work.set()
        assert failed.wait(20)

    goes_on = Thread(target=run_stage, args=(stage(wait), config, b, CPU))

    def fail() -> None:  # only now, when both are at work and nothing but the claim is in the store
        if claims_first == "the one that fails":
            goes_on.start()
        assert at_work.wait(20)
        refuse()

    if claims_first == "the one that goes on":
        goes_on.start()
        assert at_work.wait(20)
    with pytest.raises(DataError, match="the disk is full"):
        run_stage(stage(fail), config, a, CPU)
    failed.set()
    goes_on.join(20)
    findings = list(verify(machine(place, "c", monkeypatch, tmp_path)))
    assert findings and [each.problem for each in findings if each.problem] == []
    assert run_stage(stage(refuse), config, a, CPU).written == 0  # it is complete for the one that failed, too


@pytest.mark.parametrize(
    ("stage", "config", "other"),
    [
        pytest.param(Rows, CONFIG, NumbersConfig(rows=9), marks=pytest.mark.slow),
        (Files, TotalConfig(), TotalConfig(seed=1)),
    ],
)
def test_other_settings_do_not_take_the_place_of_a_claim_under_which_a_machine_may_be_at_work(
    place, monkeypatch, tmp_path, stage, config, other
):
    here = Dataset(place)
    with suppress(DataError):
        run_stage(stage(refuse), config, here, CPU)
    assert [key.rpartition("/")[2] for key in Client(parse_url(place)).list()] in (["column.json"], ["artifact.json"])
    for dataset in (here, machine(place, "b", monkeypatch, tmp_path)):
        with pytest.raises(
            RefusedError, match=r"written with other settings: .*; use the same settings, .* add --redo"
        ):
            run_stage(stage(lambda: None), other, dataset, CPU)
    assert run_stage(stage(lambda: None), config, here, CPU).written > 0
