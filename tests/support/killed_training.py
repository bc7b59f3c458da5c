"""Trains an estimator in children that are killed at random steps; a process of its own, since it forks."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from small_datasets import CPU

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.stage import EstimatorStage
from viewkit.pipelines.training import loop
from viewkit.pipelines.training.monitoring import read_metrics
from viewkit.shards.dataset import Dataset

CONFIG = EstimatorConfig(preset="pico-32", steps=120, warmup_epochs=1, batch_size=8, hidden=32, dim=16)


def losses(folder: Path) -> list[tuple[float, float]]:
    return [(line["step"], line["loss"]) for line in read_metrics(folder / "estimator" / "metrics.jsonl")]


def train(path: Path) -> None:
    loop.CHECKPOINT_S = 0.0  # a checkpoint after every line of metrics
    run_stage(EstimatorStage(), CONFIG, Dataset(path), CPU)


def main(path: Path, kills: int) -> None:
    """Kill a child after the training has got past each of `kills` random steps, then let one finish."""
    torch.set_num_threads(1)
    metrics = path / "estimator" / "metrics.jsonl"
    for step in sorted(np.random.default_rng(0).choice(CONFIG.steps - 20, kills, replace=False)):
        child = os.fork()
        if child == 0:
            train(path)
            os._exit(0)
        while not (metrics.exists() and (losses(path) or [(0, 0)])[-1][0] > step):
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the training was over before it could be killed"
    train(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
