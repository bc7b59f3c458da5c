"""A dataset whose images, generated views, scored pairs and qualities are written by hand, in four shards."""

from pathlib import Path

import numpy as np
from vs2fi_world import pictures, write_column

from viewkit.pipelines.views.recipe import column, neutral_recipes
from viewkit.shards.codecs import encode_json, encode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import make_folder
from viewkit.shards.row import Reject, Row

ROWS, ROUNDS, VIEWS, PAIRS, EXITS = 22, 2, 3, 3, 4
SHARD_ROWS = 6
UNSCORED = "row05"
"""A row that the column of pairs rejected."""
UNGENERATED = ("row03", "row17")
"""Rows that have no generated view."""
UNLABELLED = "row02"


def key_of(number: int) -> str:
    return f"row{number:02d}"


def recipes_of(number: int) -> np.ndarray:
    """[r v p]: view v of round r is the image's part from v / 8 on, brightened by the row and the round; views 2 of
    round 1 are cropped from the generated image where there is one."""
    recipes = neutral_recipes(ROUNDS * VIEWS, 32).reshape(ROUNDS, VIEWS, -1)
    for side, extent in (("top", "height"), ("left", "width")):
        recipes[..., column(side)] = np.arange(VIEWS) / 8
        recipes[..., column(extent)] = 0.5
    recipes[..., column("brightness")] = 1 + number / 100 + np.arange(ROUNDS)[:, None] / 10
    recipes[1, 2, column("source")] = key_of(number) not in UNGENERATED
    return recipes


def scores_of(number: int) -> np.ndarray:
    """[r c s], every number of its own."""
    scores = np.arange(ROUNDS * PAIRS * (3 + EXITS), dtype=np.float32).reshape(ROUNDS, PAIRS, -1) / 1000 + number
    scores[..., 0] = (number + np.arange(PAIRS) / 10) / 40
    scores[..., 1] = 1 + (number + np.arange(PAIRS)) % (EXITS + 1)
    return scores


def quality_of(number: int) -> np.ndarray:
    """[r c]; the first pair of row 4 is of unknown quality."""
    quality = np.float32(number) / 50 - np.arange(ROUNDS * PAIRS, dtype=np.float32).reshape(ROUNDS, PAIRS) / 10
    if number == 4:
        quality[0, 0] = np.nan
    return quality


def written_pairs(path: Path) -> Dataset:
    dataset = Dataset(path)
    make_folder(path)
    keys = [key_of(number) for number in range(ROWS)]
    images, views = pictures(ROWS), pictures(ROWS, seed=1)
    outcomes = []
    for number, key in enumerate(keys):
        label = {} if key == UNLABELLED else {"cls": str(number % 3).encode()}
        name = None if key == UNLABELLED else f"kind {number % 3}"
        outcomes.append(Row(key, {"png": images[number], "json": encode_json({"label": name}), **label}))
    write_column(dataset, "images", outcomes, SHARD_ROWS)
    inputs = {"images": dataset.column("images").digest}
    outcomes = [
        Reject(key, "no_foreground")
        if key in UNGENERATED
        else Row(
            key, {"png": views[number], "json": encode_json({"level": 100 * (number % 5), "foreground_share": 0.5})}
        )
        for number, key in enumerate(keys)
    ]
    write_column(dataset, "genview", outcomes, SHARD_ROWS, stage="generate", inputs=inputs)
    inputs["genview"] = dataset.column("genview").digest
    outcomes = [
        Reject(key, "undecodable")
        if key == UNSCORED
        else Row(key, {"recipes.npy": encode_npy(recipes_of(n)), "scores.npy": encode_npy(scores_of(n))})
        for n, key in enumerate(keys)
    ]
    write_column(dataset, "pairs", outcomes, SHARD_ROWS, stage="score", inputs=inputs)
    inputs["pairs"] = dataset.column("pairs").digest
    outcomes = [
        Reject(key, "undecodable") if key == UNSCORED else Row(key, {"quality.npy": encode_npy(quality_of(n))})
        for n, key in enumerate(keys)
    ]
    write_column(dataset, "quality", outcomes, SHARD_ROWS, stage="quality", inputs=inputs)
    return dataset
