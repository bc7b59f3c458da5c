"""A job of expensive views that is cut in the middle of a shard goes on there, and makes no finished view again."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
import torch
from reference.genview_pipeline import tiny_pipeline
from reference.genview_worlds import CPU, discs_dataset

from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.unclip import Unclip
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset

CONFIG = GenerateConfig(generator="unclip", sample=30, steps=1, render_px=32, output_px=32, sign="+")
BATCH = 4


class Cut(BaseException):
    """Ends a job as a kill does: nothing handles it."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights")
    tiny_pipeline().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def fitted(weights, tmp_path_factory):
    """18 images in two shards, and their foreground."""
    dataset = discs_dataset(tmp_path_factory.mktemp("discs"), images=18, broken="disc006")
    run_stage(ForegroundStage(weights, BATCH), CONFIG.foreground(), dataset, CPU)
    return dataset


@pytest.fixture(scope="module")
def whole(fitted, weights, tmp_path_factory):
    path = shutil.copytree(fitted.path, tmp_path_factory.mktemp("whole") / "dataset")
    run_stage(GenerateStage(weights, BATCH), CONFIG, Dataset(path), CPU)
    return contents(path / "genview")


@pytest.fixture
def fresh(fitted, tmp_path):
    return Dataset(shutil.copytree(fitted.path, tmp_path / "dataset"))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def test_a_cut_shard_goes_on_where_it_stopped(fresh, weights, whole, monkeypatch):
    sample, batches = Unclip.sample, []

    def cut(self, conditioning, latents, keys):
        batches.append(list(keys))
        if len(batches) == 3:
            raise Cut
        return sample(self, conditioning, latents, keys)

    monkeypatch.setattr(Unclip, "sample", cut)
    with pytest.raises(Cut):
        run_stage(GenerateStage(weights, BATCH), CONFIG, fresh, CPU)
    assert (fresh.path / "genview" / "000000.spool").stat().st_size > 1000
    run_stage(GenerateStage(weights, BATCH), CONFIG, fresh, CPU)
    assert contents(fresh.path / "genview") == whole
    made = {key for batch in batches[:2] for key in batch}
    assert len(made) == 7  # two batches of four, one of them an image that cannot be decoded
    assert not made & {key for batch in batches[3:] for key in batch}


def test_a_dry_run_neither_reads_nor_writes_kept_rows(fresh, weights, whole, monkeypatch):
    sample = Unclip.sample

    def cut(self, conditioning, latents, keys):
        if "disc008" in keys:
            raise Cut
        return sample(self, conditioning, latents, keys)

    with monkeypatch.context() as patched, pytest.raises(Cut):
        patched.setattr(Unclip, "sample", cut)
        run_stage(GenerateStage(weights, BATCH), CONFIG, fresh, CPU)
    before = contents(fresh.path / "genview")
    assert plan_stage(GenerateStage(weights, BATCH), CONFIG, fresh, CPU)["measured_rows"] == 16
    assert contents(fresh.path / "genview") == before


JOB = """
import sys, time
from pathlib import Path
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.unclip import Unclip
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.dataset import Dataset

sample = Unclip.sample
def logged(self, conditioning, latents, keys):
    with open(sys.argv[3], "a") as file:
        file.write(" ".join(dict.fromkeys(keys)) + "\\n")
    time.sleep(0.3)
    return sample(self, conditioning, latents, keys)
Unclip.sample = logged

if __name__ == "__main__":
    config = GenerateConfig(generator="unclip", sample=30, steps=1, render_px=32, output_px=32, sign="+")
    execution = Execution(device="cpu", workers=1, max_rejects=1.0)
    run_stage(GenerateStage(Path(sys.argv[2]), 4), config, Dataset(sys.argv[1]), execution)
"""


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_shard_loses_one_batch_at_most(fresh, weights, whole, tmp_path):
    script, log = tmp_path / "job.py", tmp_path / "log"
    script.write_text(JOB)
    command = [sys.executable, str(script), str(fresh.path), str(weights), str(log)]
    for batches in (2, 4):  # killed in the first shard twice, each time one batch farther
        job = subprocess.Popen(command, start_new_session=True)
        try:
            deadline = time.monotonic() + 120
            while (len(log.read_text().splitlines()) if log.exists() else 0) < batches:
                assert job.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    subprocess.run(command, check=True)
    assert contents(fresh.path / "genview") == whole
    times = Counter(key for line in log.read_text().splitlines() for key in line.split())
    assert set(times) == {f"disc{i:03d}" for i in range(18)} - {"disc006"}
    assert sum(times.values()) - len(times) <= 2 * BATCH


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_writes_the_same_bytes(fresh, weights, whole, workers):
    run_stage(GenerateStage(weights, BATCH), CONFIG, fresh, replace(CPU, workers=workers))
    assert contents(fresh.path / "genview") == whole


def test_views_that_cost_nothing_are_not_kept():
    assert GenerateStage().keeps_rows(CONFIG)
    assert not GenerateStage().keeps_rows(GenerateConfig())


def test_a_lack_of_memory_is_told_to_the_person_who_watches(fresh, weights, monkeypatch):
    denoise, told = Unclip.denoise, []

    class Told(Silent):
        def message(self, text):
            told.append(text)

    def hungry(self, conditioning, latents):
        if len(latents) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return denoise(self, conditioning, latents)

    monkeypatch.setattr(Unclip, "denoise", hungry)
    run_stage(GenerateStage(weights, BATCH), CONFIG, fresh, CPU, Told())
    assert told == ["generate: out of memory; going on with batches of 2 instead of 4"]
    column = fresh.column("genview")
    assert {decode_json(column.fields(i)["json"])["batch_size"] for i in range(column.num_rows)} == {2}
