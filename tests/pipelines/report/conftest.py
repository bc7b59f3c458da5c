"""A dataset that has everything a report can show, without anything having been trained, scored or generated."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from vs2fi_world import pictures, write_column

from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.views.recipe import column, neutral_recipes
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.histogram import CELLS
from viewkit.shards.artifact import IDENTITY, finish_artifact
from viewkit.shards.codecs import encode_json, encode_npy, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import make_folder
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Reject, Row

NUM_ROWS, ROUNDS, VIEWS, PAIRS, EXITS = 24, 2, 3, 3, 4
BAD = "<img src=x onerror=alert(1)>"
"""A name that would run a script if it were not escaped."""


def write_artifact(dataset, name, stage, config, files, inputs=None, logs=()):
    folder = dataset.path / name
    make_folder(folder)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    identity = Identity(stage, 1, config, inputs or {}, {})
    write_identity(folder / IDENTITY, identity)
    finish_artifact(folder, identity.digest, {}, logs)


def make_images(path: Path) -> Dataset:
    dataset = Dataset(path)
    make_folder(path)
    rows = [Row(f"row{k:02d}", {"png": png}) for k, png in enumerate(pictures(NUM_ROWS))]
    write_column(dataset, "images", [*rows, Reject("broken", "undecodable", f"cut {BAD}")], shard_rows=10)
    return dataset


def make_genview(dataset, name="genview", seed=1):
    outcomes = [
        Row(f"row{k:02d}", {"png": png, "json": encode_json(genview_facts(k))})
        for k, png in enumerate(pictures(NUM_ROWS, seed=seed))
    ]
    write_column(dataset, name, outcomes, shard_rows=10, stage="generate")


def genview_digest(dataset, name="genview"):
    """The input of pairs that were cropped from the column."""
    return {name: dataset.input_digest(name, for_stage="score")}


def genview_facts(k):
    return {"foreground_share": k % 5 / 5, "level": 100 * (k % 5), "generator": "retrieval", "seed": 0, "attempt": 0}


def scores_of(k):
    """[r c s]: Semantic Consistency (k + pair / 10) / 40 by row and pair, levels 1 ... EXITS + 1 by row."""
    scores = np.zeros((ROUNDS, PAIRS, 3 + EXITS), np.float32)
    scores[..., 0] = (k + np.arange(PAIRS) / 10) / 40
    scores[..., 1] = 1 + k % (EXITS + 1)
    scores[..., 2:] = 0.5
    return scores


def make_pairs(dataset, source=0, inputs=None):
    recipes = neutral_recipes(ROUNDS * VIEWS, 32).reshape(ROUNDS, VIEWS, -1)
    recipes[..., column("top")], recipes[..., column("height")] = 0.25, 0.5
    recipes[:, 1:, column("source")] = source
    fields = {"recipes.npy": encode_npy(recipes)}
    outcomes = [Row(f"row{k:02d}", {**fields, "scores.npy": encode_npy(scores_of(k))}) for k in range(NUM_ROWS)]
    write_column(dataset, "pairs", outcomes, shard_rows=10, stage="score", inputs=inputs)


def make_histograms(dataset):
    rng = np.random.default_rng(0)
    positive, negative, *soft_means = (
        np.histogram(rng.normal(mean, 0.1, 4000).clip(-1, 1), CELLS, (-1, 1))[0].astype(np.int64)
        for mean in (0.6, 0.1, 0.2, 0.25, 0.3, 0.35)
    )
    histograms = Histograms(
        positive_cells=positive, negative_cells=negative, soft_mean_cells=np.stack(soft_means), bins=20, negatives=127,
        tau=0.2, prior_positive=0.5, estimator="0" * 64, policy="moco_v3", num_views=2, num_images=4000,
    )  # fmt: skip
    make_folder(dataset.path / "histograms")
    histograms.save(dataset.path / "histograms")
    write_artifact(dataset, "histograms", "histograms", {"bins": 20}, {})


def make_foreground(dataset):
    sheet = encode_png(np.full((60, 300, 3), 90, np.uint8))
    files = {"masks.png": sheet, "foreground.json": encode_json({"sign": "-"})}
    write_artifact(dataset, "foreground", "foreground", {"share": 0.4}, files)


def make_audit(dataset):
    table = {"title": "What goes", "note": f"Of {BAD}.", "columns": ["round", "SC"], "rows": [["all", "12.5"]]}
    pictures = {"grid.png": encode_png(np.full((60, 80, 3), 90, np.uint8))}
    write_artifact(
        dataset, "audit", "audit", {"images": 24}, {"audit.json": encode_json({"tables": [table]}), **pictures}
    )


def make_fidelity(dataset):
    level = {"share": 0.25, "cosine": 0.811, "error": 0.01}
    numbers = {"generator": "retrieval", "images": 20, "cosine": 0.743, "error": 0.004, "chance": 0.31}
    numbers |= {"encoder": {"encoder": "colour"}, "independent": True}
    write_artifact(
        dataset, "fidelity", "fidelity", {}, {"fidelity.json": encode_json({**numbers, "levels": {"100": level}})}
    )


def make_run(dataset, name, **options):
    lines = [{"step": 10 * n, "loss": 5 / n, "spread": 0.9, "images_per_s": None} for n in range(1, 6)]
    files = {
        "metrics.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in lines),
        "config.json": b"{}",
    }
    config = resolve(PretrainConfig(**options)).values()
    write_artifact(dataset, f"runs/{name}", "pretrain", config, files, logs=("metrics.jsonl",))


def probes_of(*top1):
    names = ("knn20", "knn200", "linear")
    knn = {"top5": 0.9, "mean_per_class": 0.5}
    more = ({"k": 20, "k_used": 20}, {"k": 200, "k_used": 150}, {"strength": 0.1, "split_accuracy": 0.5})
    return [
        {"name": name, "top1": value, **knn, **extra, **({"converged": True} if name == "linear" else {})}
        for name, value, extra in zip(names, top1, more, strict=True)
    ]


def make_eval(dataset, name, top1, num_test=1000, test="a" * 64, baselines=True):
    result = {
        "run": name,
        "arch": "resnet10_narrow",
        "side_px": 32,
        "data": {"num_train": 150, "num_test": num_test, "num_classes": 10, "most_frequent_class": 0.1},
        "protocol": {"kNN": "cosine", "linear": "logistic regression"},
        "probes": {
            "encoder": probes_of(*top1),
            "untrained": probes_of(0.301, 0.29, 0.35),
            "pixels": probes_of(0.252, 0.24, 0.31),
        },
    }
    if not baselines:
        result["probes"] = {"encoder": result["probes"]["encoder"]}
    files = {"eval.json": encode_json(result)}
    inputs = {"images": "b" * 64, f"runs/{name}": "c" * 64, "test images": test}
    write_artifact(dataset, f"runs/{name}/eval", "evaluate", {"k": "20,200", "baselines": baselines}, files, inputs)


@pytest.fixture
def images_only(tmp_path):
    return make_images(tmp_path / "d")


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    dataset = make_images(tmp_path_factory.mktemp("report") / "d")
    make_genview(dataset)
    make_pairs(dataset, source=1, inputs=genview_digest(dataset))
    make_histograms(dataset)
    make_foreground(dataset)
    make_audit(dataset)
    make_fidelity(dataset)
    for name, options, top1 in (
        ("random", {}, (0.400, 0.38, 0.45)),
        ("vs2fi", {"select": "vs2fi"}, (0.500, 0.39, 0.30)),
        ("generated", {"alpha": 0.5}, (0.250, 0.37, 0.45)),
        ("longer", {"select": "vs2fi", "epochs": 300}, (0.600, 0.5, 0.6)),
    ):
        make_run(dataset, name, **options)
        make_eval(dataset, name, top1)
    return dataset


@pytest.fixture(scope="session")
def build():
    """The functions and constants of this file."""
    return sys.modules[__name__]
