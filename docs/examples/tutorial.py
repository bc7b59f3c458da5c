"""From images to a judged encoder in Python: every stage of viewkit once, with a look at what each has made.

python docs/examples/tutorial.py FOLDER [STEPS]

Some minutes on two cores. Stopped and started again, it goes on where it was: every stage is a resumable job.
"""

import sys
from pathlib import Path

import numpy as np

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.stage import EstimatorStage
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.stage import EvaluateStage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.pipelines.pairs.load import load_pairs
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.shards.codecs import decode_npy
from viewkit.shards.dataset import Dataset


def pack(dataset, source, labels="none"):
    """Step 1. Files become rows of shards: decoded once, checked, shuffled by the hash of their paths."""
    run_stage(PackStage(source), PackConfig(labels=labels), dataset, Execution())
    images = dataset.column("images")
    print(f"packed {images.num_rows} images; the first is {next(iter(images.keys()))}")


def judge(dataset, steps, batch_size):
    """Step 2. A small network learns what views of one image have in common, and judges candidate pairs by it."""
    small = {"preset": "pico-32", "steps": steps, "batch_size": batch_size, "hidden": 256, "dim": 64}
    run_stage(EstimatorStage(), EstimatorConfig(**small), dataset, Execution())
    run_stage(HistogramsStage(), HistogramsConfig(), dataset, Execution())
    run_stage(ScoreStage(), ScoreConfig(rounds=2), dataset, Execution())


def look(dataset):
    """Step 3. Every pair has two scores: do its views share content, and at which depth do they agree?"""
    column = dataset.column("pairs")
    scores = np.stack([decode_npy(column.fields(row)["scores.npy"]) for row in range(column.num_rows)])
    consistency, level = scores[..., 0], scores[..., 1]  # n rounds pairs
    print(f"{consistency.size} pairs; Semantic Consistency {np.percentile(consistency, [5, 50, 95]).round(3)}")
    print(f"pairs by Alignment Level: {dict(enumerate(np.bincount(level.astype(int).ravel()).tolist()))}")
    return consistency


def compare(dataset, test, steps, batch_size):
    """Step 4. Two encoders, trained for as many steps: on random pairs, and on pairs that pass both filters."""
    shared = {"arch": "vit_pico_patch8", "steps": steps, "batch_size": batch_size, "hidden": 256, "dim": 64}
    found = {}
    for name, select in (("random", "random"), ("chosen", "vs2fi")):
        config = PretrainConfig(select=select, policy="strengthened", lr=2e-3, **shared)
        run_stage(PretrainStage(name), config, dataset, Execution())
        run = dataset.path / "runs" / name
        run_stage(EvaluateStage(str(run), str(test.path)), EvaluateConfig(probes="knn", k="5"), dataset, Execution())
        found[name] = run / "eval"
    return found


def train_elsewhere(dataset, batch_size):
    """Step 5. The same pairs for a trainer of your own: batches of normalised views [n 3 side side]."""
    pairs = load_pairs(dataset, policy="strengthened", side_px=32, batch_size=batch_size, select="vs2fi")
    return next(iter(pairs.epoch(0)))


def main(folder, train="demo:train", test="demo:test", labels="none", steps=40, batch_size=128):
    dataset, tested = Dataset(Path(folder) / "train"), Dataset(Path(folder) / "test")
    pack(dataset, train, labels)
    pack(tested, test, labels)
    judge(dataset, steps, batch_size)
    look(dataset)
    found = compare(dataset, tested, steps, batch_size)
    batch = train_elsewhere(dataset, batch_size)
    print(f"a batch of pairs: {tuple(batch.views1.shape)} and {tuple(batch.views2.shape)}")
    return found


if __name__ == "__main__":
    for name, place in main(sys.argv[1], **({"steps": int(sys.argv[2])} if len(sys.argv) > 2 else {})).items():
        print(f"{name}: {place}")
