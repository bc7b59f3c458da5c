"""Mosaics of four tiles with their annotation, and stored pairs of them: with scores, and drawn without."""

import numpy as np
from small_datasets import CPU
from vs2fi_world import write_column

from viewkit.pipelines.draw.config import DrawConfig
from viewkit.pipelines.draw.stage import DrawStage
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pairs.rules import facts_of
from viewkit.shards.codecs import decode_npy, encode_json, encode_npy, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import make_folder
from viewkit.shards.row import Row

POLICY = "mosaic"
TILE_PX = 20
EXITS = 3


def mosaics(path, count=24, plain=()):
    """Images of two by two tiles of 20 px, each an object of its own. plain: keys without annotation."""
    rng = np.random.default_rng(0)
    tiles = [{"bbox": [TILE_PX * (k % 2), TILE_PX * (k // 2), TILE_PX, TILE_PX], "category": "tile"} for k in range(4)]
    facts = {"metadata": {"objects": tiles, "height": 2 * TILE_PX, "width": 2 * TILE_PX}}
    rows = []
    for place in range(count):
        key = f"row{place:04d}"
        pixels = rng.integers(0, 256, (2, 2, 3)).repeat(TILE_PX, axis=0).repeat(TILE_PX, axis=1).astype(np.uint8)
        rows.append(Row(key, {"png": encode_png(pixels), "json": encode_json({} if key in plain else facts)}))
    make_folder(path)
    dataset = Dataset(path)
    write_column(dataset, "images", rows, shard_rows=10)
    return dataset


def draw_and_score(dataset, column="pairs", drawn="pairs_drawn"):
    """Two rounds of four views of every mosaic as `draw` writes them, and the same ones with scores: a pair is as
    similar as its crops overlap, and of any consistency and level."""
    config = DrawConfig(rounds=2, num_views=4, candidates="original", policy=POLICY)
    run_stage(DrawStage(drawn), config, dataset, CPU)
    source, rng, rows = dataset.column(drawn), np.random.default_rng(0), []
    for place, key in enumerate(source.keys()):
        recipes = decode_npy(source.fields(place)["recipes.npy"])
        scores = np.zeros((2, 6, 2 + 1 + EXITS), dtype=np.float32)
        scores[:, :, 0], scores[:, :, 1] = rng.random((2, 6)), rng.integers(1, EXITS + 2, (2, 6))
        scores[:, :, 2] = facts_of(recipes).overlaps + rng.normal(0, 0.2, (2, 6))
        rows.append(Row(key, {"recipes.npy": encode_npy(recipes), "scores.npy": encode_npy(scores)}))
    inputs = {name: source.identity.inputs[name] for name in ("images", "policy")}
    write_column(dataset, column, rows, shard_rows=10, stage="score", inputs=inputs)
