"""A tiny generator of one's own on a small dataset; as a program, its training is killed, or left undisturbed."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from reference.genview_worlds import CPU, UntrainedConfig, UntrainedStage
from vs2fi_world import write_column

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.generate.own.config import GeneratorConfig
from viewkit.pipelines.generate.own.stage import GeneratorStage
from viewkit.pipelines.training import loop
from viewkit.pipelines.training.metrics import read_metrics
from viewkit.shards.codecs import encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import make_folder
from viewkit.shards.row import Row

TINY = GeneratorConfig(preset="pico-32", width=16, steps=10, batch_size=8, held_out=10, sampling_steps=1)


def plain_colours(path: Path, images: int) -> Dataset:
    """`colour_images` with an untrained estimator."""
    dataset = colour_images(path, images)
    run_stage(UntrainedStage(), UntrainedConfig(), dataset, CPU)
    return dataset


def colour_images(path: Path, images: int, side_px: int = 32) -> Dataset:
    """Images of one colour each, a little grainy."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(images):
        pixels = rng.integers(30, 226, 3) + rng.integers(-20, 21, (side_px, side_px, 1))
        rows.append(Row(f"plain{number:03}", {"png": encode_png(pixels.clip(0, 255).astype(np.uint8))}))
    make_folder(path)
    dataset = Dataset(path)
    write_column(dataset, "images", rows, 32)
    return dataset


def train(path: Path) -> None:
    loop.CHECKPOINT_S = 0.0  # a checkpoint after every line of metrics
    run_stage(GeneratorStage(), replace(TINY, steps=60), Dataset(path), CPU)


def main(path: Path) -> None:
    """Kill a training that has got past step 20, then let one finish."""
    torch.set_num_threads(1)
    metrics = path / "generator" / "metrics.jsonl"
    child = os.fork()
    if child == 0:
        train(path)
        os._exit(0)
    while not (metrics.exists() and (read_metrics(metrics) or [{"step": 0}])[-1]["step"] >= 20):
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the training was over before it could be killed"
    assert (path / "generator" / loop.CHECKPOINT).exists()
    train(path)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        torch.set_num_threads(1)
        train(Path(sys.argv[1]))  # undisturbed
