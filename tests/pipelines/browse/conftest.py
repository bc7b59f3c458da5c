"""Datasets with scored, rescored, drawn and logged pairs, without an estimator having been trained."""

import io
import sys

import numpy as np
import pytest
from small_datasets import CPU
from vs2fi_world import pictures

from viewkit.pipelines.draw.config import DrawConfig
from viewkit.pipelines.draw.stage import DrawStage
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pairs.candidates import RowSizes, sample_round
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.histogram import CELLS
from viewkit.pipelines.vs2fi.scores import score_pairs
from viewkit.shards.artifact import IDENTITY, finish_artifact
from viewkit.shards.codecs import decode_image, encode_json, encode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.files import make_folder
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Row
from viewkit.shards.writer import ShardWriter

NUM_ROWS, ROUNDS, VIEWS, EXITS = 30, 2, 4, 5
BAD = "<img src=x onerror=window.hacked=1>"
"""A name that would run a script if it were not text."""
CLASSES = ["cat", BAD, "dog"]
GAMMA = 0.625
POLICY = load_policy("strengthened")
SAMPLED = {"policy": digest(POLICY.to_dict())}
KEYS = [f"row{k:02d}" if k != 7 else BAD for k in range(NUM_ROWS)]


def write_column(dataset, name, rows, stage, config=None, inputs=None):
    folder = dataset.path / name
    make_folder(folder)
    identity = Identity(stage, 1, config or {}, inputs or {}, {"shards": 1, "rows": len(rows)})
    write_identity(folder / "column.json", identity)
    with ShardWriter(folder, 0, identity.digest) as writer:
        for row in rows:
            writer.write(row)
        writer.finish()


def write_artifact(dataset, name, stage, config, files, inputs=None):
    folder = dataset.path / name
    make_folder(folder)
    for file, content in files.items():
        make_folder((folder / file).parent)
        (folder / file).write_bytes(content)
    identity = Identity(stage, 1, config, inputs or {}, {})
    write_identity(folder / IDENTITY, identity)
    finish_artifact(folder, identity.digest, {}, ("metrics.jsonl",))


def make_images(path, labels=True):
    dataset = Dataset(path)
    make_folder(path)
    rows = []
    for k, (key, png) in enumerate(zip(KEYS, pictures(NUM_ROWS), strict=True)):
        named = {"cls": b"%d" % (k % 3), "json": encode_json({"label": CLASSES[k % 3]})} if labels else {}
        rows.append(Row(key, {"png": png, **named}))
    write_column(dataset, "images", rows, "pack")
    return dataset


def make_genview(dataset):
    rows = [
        Row(key, {"png": png, "json": encode_json({"level": 100 * (k % 3)})})
        for k, (key, png) in enumerate(zip(KEYS, pictures(NUM_ROWS, seed=1), strict=True))
        if k != 3
    ]
    write_column(dataset, "genview", rows, "generate")


def make_histograms(dataset):
    rng = np.random.default_rng(0)

    def counts(mean, count):
        return np.histogram(rng.normal(mean, 0.12, count).clip(-1, 1), CELLS, (-1, 1))[0].astype(np.int64)

    histograms = Histograms(
        positive_cells=counts(0.6, 4000), negative_cells=counts(0.1, 4000),
        soft_mean_cells=np.stack([counts(0.2 + 0.05 * exit_, 8000) for exit_ in range(EXITS)]), bins=20, negatives=1,
        tau=0.2, prior_positive=0.5, estimator="e" * 64, policy=POLICY.name, num_views=2, num_images=4000,
    )  # fmt: skip
    make_folder(dataset.path / "histograms")
    histograms.save(dataset.path / "histograms")
    write_artifact(
        dataset, "histograms", "histograms", {"policy": POLICY.name, "pipelines": "random", "bins": 20}, {}, SAMPLED
    )
    return histograms


def sizes_of(dataset, name):
    column = dataset.column(name)
    return {key: decode_image(column.fields(place)).shape[:2] for key, place in column.place_of.items()}


def make_pairs(dataset, histograms, candidates="mixed"):
    """Similarities of random numbers, and the indicators that go with them."""
    sizes, others = sizes_of(dataset, "images"), sizes_of(dataset, "genview") if candidates == "mixed" else {}
    named = [RowSizes(key, sizes[key], others.get(key)) for key in KEYS]
    options = {"seed": 0, "stage": "score", "rounds": ROUNDS, "num_views": VIEWS, "candidates": candidates}
    recipes = np.stack([sample_round(POLICY.with_side(32), named, round=r, **options) for r in range(ROUNDS)], axis=1)
    count = len(pair_index(VIEWS))
    rng = np.random.default_rng(1)
    similarities = rng.normal(0.45, 0.25, (NUM_ROWS, ROUNDS, count, 1 + EXITS)).clip(-1, 1).astype(np.float32)
    scores = score_pairs(similarities, histograms, GAMMA)
    rows = [
        Row(key, {"recipes.npy": encode_npy(recipes[k]), "scores.npy": encode_npy(scores[k])})
        for k, key in enumerate(KEYS)
    ]
    names = ["images", "histograms", *(["genview"] if candidates == "mixed" else [])]
    inputs = {**SAMPLED, "estimator": "e" * 64, **{name: dataset.input_digest(name, "score") for name in names}}
    config = {"policy": POLICY.name, "gamma": GAMMA, "precision": "fp32", "candidates": candidates}
    write_column(dataset, "pairs", rows, "score", config, inputs)


def make_quality(dataset, pairs="pairs"):
    count = len(pair_index(VIEWS))
    rows = [
        Row(key, {"quality.npy": encode_npy(np.full((ROUNDS, count), k / 10, np.float32))})
        for k, key in enumerate(KEYS)
        if k != 5
    ]
    write_column(dataset, "quality", rows, "quality", {}, {pairs: dataset.column(pairs).digest})


def make_run(dataset, name="hard", keys=KEYS, steps=(0, 10), side_px=32):
    """A run with logged views, as `ViewLog` writes them. keys: None as older versions wrote none."""
    files = {}
    pairs = pair_index(VIEWS)
    sizes = sizes_of(dataset, "images")
    for step in steps:
        named = [RowSizes(key, sizes[key]) for key in KEYS]
        recipes = sample_round(POLICY.with_side(32), named, seed=step, stage="x", round=0, rounds=1, num_views=VIEWS)
        losses = np.random.default_rng(step).uniform(1, 4, (NUM_ROWS, len(pairs))).astype(np.float32)
        arrays = {
            "step": np.array(step), "fields": np.array(["x"]), "recipes": recipes, "losses": losses,
            "views": pairs[losses.argmax(axis=1)], "iou": losses, "sizes_px": np.zeros((NUM_ROWS, VIEWS, 2)),
        }  # fmt: skip
        content = io.BytesIO()
        np.savez_compressed(content, **arrays, **({} if keys is None else {"keys": np.array(keys)}))
        files[f"views/{step:08d}.npz"] = content.getvalue()
    config = resolve(PretrainConfig(select="hard", policy="strengthened", side_px=side_px)).values()
    inputs = {"images": dataset.input_digest("images", "pretrain")}
    write_artifact(dataset, f"runs/{name}", "pretrain", config, files, inputs)


@pytest.fixture(scope="session")
def scored(tmp_path_factory):
    """Labelled images, generated views, histograms, pairs with scores and qualities, drawn pairs, and a logged run."""
    dataset = make_images(tmp_path_factory.mktemp("browse") / "d & <b>")
    make_genview(dataset)
    make_pairs(dataset, make_histograms(dataset))
    make_quality(dataset)
    run_stage(DrawStage("pairs_drawn"), DrawConfig(rounds=3, candidates="original", side_px=32), dataset, CPU)
    make_run(dataset)
    return dataset


@pytest.fixture(scope="session")
def build():
    """The functions and constants of this file."""
    return sys.modules[__name__]
