"""Bytes do not depend on the number of threads: the parts, and the whole chain under OMP_NUM_THREADS 1, 2 and 4."""

import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from small_datasets import CPU, contents, numbers_dataset
from tiny_chain import jobs, photographs
from toy_stages import LengthsConfig, LengthsStage, TotalConfig, TotalStage

from viewkit.pipelines.audit.config import AuditConfig
from viewkit.pipelines.audit.stage import AuditStage
from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.threads import one_thread, side_by_side, thread_advice
from viewkit.pipelines.generate.fidelity_config import FidelityConfig
from viewkit.pipelines.generate.fidelity_stage import FidelityStage
from viewkit.shards.dataset import Dataset


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_keep_the_order_of_the_items_however_long_each_takes():
    def slow_first(item):
        time.sleep(0.02 if item % 3 == 0 else 0)
        return item * item

    assert list(side_by_side(slow_first, range(20), "cpu", threads=3)) == [item * item for item in range(20)]


def test_items_are_read_a_few_ahead_and_no_more():
    read = []

    def items():
        for item in range(100):
            read.append(item)
            yield item

    results = side_by_side(lambda item: item, items(), "cpu", threads=2)
    assert [next(results), next(results)] == [0, 1]
    assert len(read) <= 6
    results.close()


def test_an_item_s_error_comes_at_its_turn():
    def fails(item):
        if item == 3:
            raise ValueError("three")
        return item

    results, seen = side_by_side(fails, range(9), "cpu", threads=2), []
    with pytest.raises(ValueError, match="three"):
        seen.extend(results)
    assert seen == [0, 1, 2]


def test_every_item_computes_on_one_thread_and_a_device_has_one_caller(two_threads):
    with one_thread():
        assert torch.get_num_threads() == 1
        assert set(side_by_side(lambda _: torch.get_num_threads(), range(8), "cpu", threads=2)) == {1}
    assert torch.get_num_threads() == 2
    callers = set(side_by_side(lambda _: threading.get_ident(), range(8), "cuda:0"))
    assert callers == {threading.get_ident()}


class Counts(TotalStage):
    """Notes the threads it was given."""

    seen: ClassVar[list[int]] = []

    def fit(self, config, run):
        self.seen.append(torch.get_num_threads())
        return super().fit(config, run)


class Trains(Counts):
    trains = True
    resumes = True


@pytest.mark.parametrize(("stage", "threads"), [(Counts, 1), (Trains, 2)])
def test_a_fit_computes_on_one_thread_and_a_training_on_all(tmp_path, two_threads, stage, threads):
    dataset = numbers_dataset(tmp_path)
    Counts.seen.clear()
    run_stage(stage(), TotalConfig(), dataset, CPU)
    assert Counts.seen == [threads]


class Spoken(Silent):
    def __init__(self):
        self.lines = []

    def message(self, text):
        self.lines.append(text)


def test_a_training_that_goes_on_with_other_threads_says_so(tmp_path, two_threads, monkeypatch):
    dataset, spoken = numbers_dataset(tmp_path), Spoken()
    monkeypatch.setattr("os.getloadavg", lambda: (9.0, 9.0, 9.0))
    run_stage(Trains(), TotalConfig(), dataset, CPU, spoken)
    advice = spoken.lines.pop()
    assert "total: other jobs keep these" in advice and "OMP_NUM_THREADS=1 is usually faster then" in advice
    (tmp_path / "total" / "receipt.json").unlink()
    run_stage(Trains(), TotalConfig(), dataset, CPU, spoken)
    assert spoken.lines == []  # what was begun keeps its threads
    (tmp_path / "total" / "receipt.json").unlink()
    torch.set_num_threads(1)
    run_stage(Trains(), TotalConfig(), dataset, CPU, spoken)
    assert len(spoken.lines) == 1 and "threads was 2 and is 1" in spoken.lines[0]


def test_a_column_that_goes_on_with_other_software_says_so_once_and_names_both(tmp_path, monkeypatch):
    dataset, spoken = numbers_dataset(tmp_path), Spoken()
    monkeypatch.setattr("viewkit.shards.identity.metadata.version", lambda name: "1.0")
    run_stage(LengthsStage(), LengthsConfig(), dataset, replace(CPU, part="0/2"), spoken)
    run_stage(LengthsStage(), LengthsConfig(), dataset, replace(CPU, part="0/2"), spoken)
    (tmp_path / "lengths" / "000000.json").unlink()
    monkeypatch.setattr(
        "viewkit.shards.identity.metadata.version", lambda name: "2.0" if name in ("torch", "numpy") else "1.0"
    )
    run_stage(LengthsStage(), LengthsConfig(), dataset, replace(CPU, part="0/2"), spoken)
    assert len(spoken.lines) == 1
    assert "numpy was 1.0 and is 2.0; torch was 1.0 and is 2.0; column.json names" in spoken.lines[0]


def make(path: Path) -> None:
    """All stages after the training, in this process's number of threads."""
    dataset = Dataset(path / "data")
    steps = [
        (job.stage, job.config) for name, job in jobs(path / "images").items() if name not in ("images", "estimator")
    ]
    also = [(AuditStage(), AuditConfig(images=8)), (FidelityStage(), FidelityConfig(sample=8))]
    for stage, config in [*steps, *also]:
        run_stage(stage, config, dataset, CPU)


@pytest.mark.slow
def test_every_stage_but_a_training_writes_the_same_bytes_whatever_the_number_of_threads(tmp_path):
    first = tmp_path / "1"
    photographs(first / "images")
    steps, data = jobs(first / "images"), Dataset(first / "data")
    for name in ("images", "estimator"):
        run_stage(steps[name].stage, steps[name].config, data, CPU)
    for threads in ("2", "4"):
        shutil.copytree(first, tmp_path / threads)
    for threads in ("1", "2", "4"):
        path = os.pathsep.join(entry for entry in sys.path if entry)
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONPATH": path}
        environment.pop("MKL_NUM_THREADS", None)
        subprocess.run([sys.executable, __file__, str(tmp_path / threads)], check=True, env=environment)
    found = {threads: contents(tmp_path / threads / "data") for threads in ("1", "2", "4")}
    assert {name.split("/")[0] for name in found["1"]} >= {
        "foreground",
        "genview",
        "histograms",
        "pairs",
        "quality",
        "audit",
    }
    for threads in ("2", "4"):
        differing = [name for name in found["1"] if found["1"][name] != found[threads].get(name)]
        assert not differing and found["1"].keys() == found[threads].keys()


if __name__ == "__main__":
    make(Path(sys.argv[1]))


def test_threads_that_others_keep_from_running_are_advised_against():
    assert thread_advice(threads=2, cores=2, load=0.3) is None
    assert thread_advice(threads=1, cores=2, load=9.0) is None
    assert thread_advice(threads=2, cores=2, load=3.1) == (
        "other jobs keep these 2 cores busy (load 3.1) and torch computes on 2 threads; OMP_NUM_THREADS=1 is usually "
        "faster then"
    )
    assert "OMP_NUM_THREADS=6 " in thread_advice(threads=16, cores=16, load=10.0)
