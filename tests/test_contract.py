"""Every column-writing stage, run whole, on several workers, and killed and resumed, writes the same bytes."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_chain
import webdataset
from small_datasets import CPU, contents
from tiny_chain import IMAGES, jobs

from viewkit.pipelines.engine.contract import MapStage
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.shards.dataset import Dataset
from viewkit.shards.verify import verify

COLUMNS = ["images", "genview", "pairs", "pairs_drawn", "quality"]
KILLS = 30


@pytest.fixture
def source(chain):
    return chain.source


@pytest.fixture
def whole(chain):
    return chain.dataset


def without(whole, column, tmp_path):
    """A copy of the dataset that lacks `column`."""
    shutil.copytree(whole.path, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / column)
    return Dataset(tmp_path / "data")


def test_the_columns_named_here_are_those_the_chain_writes(source):
    assert [name for name, job in jobs(source).items() if isinstance(job.stage, MapStage)] == COLUMNS


def test_the_chain_leaves_a_whole_dataset(whole):
    assert [finding.problem for finding in verify(whole) if finding.problem] == []


@pytest.mark.parametrize("column", COLUMNS)
def test_counts_are_conserved(whole, column):
    found = whole.column(column)
    inputs = IMAGES + 2 if column == "images" else IMAGES
    assert found.identity.plan["rows"] == inputs == found.num_rows + len(found.rejects)


@pytest.mark.parametrize("column", COLUMNS)
def test_plain_webdataset_reads_every_column(whole, column):
    found = whole.column(column)
    tars = [str(path) for path in sorted(found.path.glob("*.tar"))]
    theirs = {sample["__key__"]: sample for sample in webdataset.WebDataset(tars, shardshuffle=False)}
    assert list(theirs) == list(found.keys())
    for index, key in enumerate(found.keys()):
        assert {name: value for name, value in theirs[key].items() if not name.startswith("__")} == found.fields(index)


@pytest.mark.parametrize("column", COLUMNS)
def test_every_stage_plans_what_is_left_without_writing(whole, source, column, tmp_path):
    dataset = without(whole, column, tmp_path)
    before = contents(dataset.path)
    job = jobs(source)[column]
    plan = plan_stage(job.stage, job.config, dataset, CPU)
    assert plan["rows_left"] == plan["rows"] == whole.column(column).identity.plan["rows"]
    assert plan["estimated_bytes"] > 0
    assert contents(dataset.path) == before


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("column", COLUMNS)
def test_any_number_of_workers_writes_the_same_bytes(whole, source, column, workers, tmp_path):
    dataset = without(whole, column, tmp_path)
    job = jobs(source)[column]
    run_stage(job.stage, job.config, dataset, replace(CPU, workers=workers))
    assert contents(dataset.path / column) == contents(whole.path / column)


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
def test_a_stage_killed_at_thirty_random_moments_writes_the_same_bytes(whole, source, column, tmp_path):
    dataset = without(whole, column, tmp_path)
    job = jobs(source)[column]
    start = time.monotonic()
    run_stage(job.stage, job.config, dataset, CPU)
    undisturbed_s = time.monotonic() - start
    shutil.rmtree(dataset.path / column)
    support = Path(tiny_chain.__file__)
    environment = {**os.environ, "PYTHONPATH": str(support.parent)}
    command = [sys.executable, str(support), str(source), str(dataset.path), column, str(KILLS), str(undisturbed_s)]
    subprocess.run(command, check=True, env=environment)
    assert contents(dataset.path) == contents(whole.path)
