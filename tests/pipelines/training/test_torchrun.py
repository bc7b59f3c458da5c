"""Whole trainings as users start them: under torchrun, and killed again and again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import killed_training
import pytest
import torch
from killed_training import losses
from safetensors.torch import load_file
from tiny_chain import CPU, photographs

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.shards.dataset import Dataset

OPTIONS = [
    "--preset",
    "pico-32",
    "--steps",
    "24",
    "--warmup-epochs",
    "1",
    "--batch-size",
    "8",
    "--hidden",
    "32",
    "--dim",
    "16",
    "--device",
    "cpu",
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
VIEWKIT = str(Path(sys.executable).with_name("viewkit"))


def packed(folder):
    run_stage(PackStage(str(photographs(folder / "photographs"))), PackConfig(labels="folders"), Dataset(folder), CPU)
    return folder


def torchrun(processes):
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={processes}",
        "--no-python",
    ]


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    one, two = packed(tmp_path / "one"), packed(tmp_path / "two")
    subprocess.run([VIEWKIT, "estimator", str(one), *OPTIONS], env=ENVIRONMENT, check=True, capture_output=True)
    launched = [*torchrun(2), VIEWKIT, "estimator", str(two), *OPTIONS]
    subprocess.run(launched, env=ENVIRONMENT, check=True, capture_output=True)
    for (step, ours), (same, theirs) in zip(losses(two), losses(one), strict=True):
        assert step == same and ours == pytest.approx(theirs, rel=2e-3)
    identity, other = ((each / "estimator" / "artifact.json").read_bytes() for each in (two, one))
    assert identity == other
    weights, plain = (load_file(each / "estimator" / "estimator.safetensors") for each in (two, one))
    assert weights.keys() == plain.keys()
    facts = json.loads((two / "estimator" / "estimator.json").read_bytes())
    assert facts["batch_size"] == 8
    distance = sum(float((weights[name].float() - plain[name].float()).square().sum()) for name in plain)
    size = sum(float(plain[name].float().square().sum()) for name in plain)
    assert distance < 1e-4 * size


@pytest.mark.slow
def test_processes_that_cannot_share_a_batch_are_told_so(tmp_path):
    dataset = packed(tmp_path)
    launched = [*torchrun(3), VIEWKIT, "estimator", str(dataset), *OPTIONS]
    found = subprocess.run(launched, env=ENVIRONMENT, capture_output=True, text=True)
    assert found.returncode != 0 and "batch_size is 8 on 3 processes" in found.stderr
    assert not (dataset / "estimator").exists()


@pytest.mark.slow
def test_a_training_killed_at_ten_random_steps_has_the_losses_of_an_undisturbed_one(tmp_path):
    whole, killed = packed(tmp_path / "whole"), packed(tmp_path / "killed")
    program = Path(killed_training.__file__)
    for folder, kills in ((whole, "0"), (killed, "10")):
        environment = {**ENVIRONMENT, "PYTHONPATH": str(program.parent)}
        subprocess.run([sys.executable, str(program), str(folder), kills], env=environment, check=True)
    assert losses(killed) == losses(whole) and losses(whole)[-1][0] == killed_training.CONFIG.steps
    ours, theirs = (load_file(each / "estimator" / "estimator.safetensors") for each in (killed, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
