"""What stands in the page: axes, groups, images, pictures, and how thresholds are read off."""

from importlib import metadata
from typing import Any

import numpy as np

from viewkit.pipelines.browse.candidates import Groups
from viewkit.pipelines.browse.command import policy_word, run_command
from viewkit.pipelines.browse.data import packed
from viewkit.pipelines.browse.measures import crop_overlaps, noise_levels, pair_qualities, read_classes
from viewkit.pipelines.browse.pictures import Pictures
from viewkit.pipelines.browse.shown import Shown
from viewkit.pipelines.browse.thresholds import reading_of
from viewkit.pipelines.labels import labels_of
from viewkit.pipelines.pairs.column import CONSISTENCY, LEVEL, SIMILARITIES, num_exits_of
from viewkit.pipelines.pairs.rules import SHARE_OF_BLOCKS
from viewkit.pipelines.views.recipe import BOX
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.shards.dataset import Dataset
from viewkit.shards.spans import spanned

SIXTEEN = 2**16 - 1
"""Boxes are drawn to 1/65535 of the image."""


@spanned("content")
def content_of(dataset: Dataset, shown: Shown, groups: Groups, pictures: Pictures, side_px: int) -> dict[str, Any]:
    """JSON values; arrays are packed. An axis is {name, label, values} with one number for every pair."""
    keys = list(dict.fromkeys(groups.keys))
    row_of = {key: row for row, key in enumerate(keys)}
    rows = np.array([row_of[key] for key in groups.keys])
    classes, names = read_classes(keys, dataset.column("images"), labels_of(dataset))
    axes, absent = axes_of(dataset, shown, groups, pictures, keys, rows)
    boxes = np.rint(groups.recipes[..., BOX] * SIXTEEN)
    content: dict[str, Any] = {
        "version": metadata.version("viewkit"),
        "dataset": dataset.path.resolve().name,
        "of": shown.of,
        "run": shown.run,
        "scored": shown.scored,
        "policy": shown.policy.name,
        "policy_word": policy_word(shown),
        "command": run_command(shown),
        "side_px": side_px,
        "options": {name: shown.config.get(name) for name in ("gamma", "candidates")},
        "place": "step" if shown.run else "round",
        "axes": axes,
        "absent": absent,
        "views_per_group": groups.recipes.shape[1],
        "pair_index": groups.views.tolist(),
        "rows": packed(rows, "u4"),
        "places": packed(groups.places, "u4"),
        "boxes": packed(boxes, "u2"),
        "sources": packed(groups.source, "u1"),
        "keys": keys,
        "classes": packed(classes, "u2"),
        "class_names": names,
        "images": [pictures.images[key] for key in keys[: len(pictures.images)]],
        "views": pictures.views,
    }
    if groups.run_of is not None:
        content |= {"runs": str(shown.run).split(","), "run_of": packed(groups.run_of, "u1")}
    if groups.chosen is not None:
        content["chosen"] = packed(groups.chosen, "u1")
    if groups.scores is not None:
        content["similarities"] = packed(groups.scores[..., SIMILARITIES:], "f4")
        content["num_exits"] = num_exits_of(groups.scores)
        content["k_al"] = SHARE_OF_BLOCKS * num_exits_of(groups.scores)
    if shown.histograms is not None:
        reading = reading_of(Histograms.load(dataset.artifact(shown.histograms)))
        arrays = ("weights", "centres", "values", "below")
        content["reading"] = reading.facts() | {name: packed(getattr(reading, name), "f8") for name in arrays}
    return content


def axes_of(
    dataset: Dataset, shown: Shown, groups: Groups, pictures: Pictures, keys: list[str], rows: np.ndarray
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The axes there are, and for the others why they are not: {label, why}."""
    axes: list[dict[str, Any]] = []
    absent: list[dict[str, str]] = []

    def add(name: str, label: str, values: np.ndarray | None, why: str) -> None:
        if values is None or not np.isfinite(values).any():
            absent.append({"label": label, "why": why})
        else:
            axes.append({"name": name, "label": label, "values": packed(values, "f4")})

    scores = groups.scores
    unscored = (
        "these pairs were logged by a run" if shown.run else "these pairs were drawn and not scored (viewkit score)"
    )
    add("consistency", "Semantic Consistency", None if scores is None else scores[..., CONSISTENCY], unscored)
    add("level", "Alignment Level", None if scores is None else scores[..., LEVEL], unscored)
    add("similarity", "similarity", None if scores is None else scores[..., SIMILARITIES], unscored)
    add("overlap", "crop overlap", crop_overlaps(groups), "all pairs are of two images")
    colour = np.full((len(groups.keys), len(groups.views)), np.nan, dtype=np.float32)
    if pictures.colour:
        colour[: len(pictures.colour)] = np.stack(pictures.colour)
    add("colour", "colour distance", colour, "it is measured on the pairs with pictures, and there are none")
    quality = None if shown.quality is None else pair_qualities(groups, dataset.column(shown.quality))
    add("quality", "quality", quality, unscored if shown.run else "these pairs have not been rated (viewkit quality)")
    levels = None if shown.genview is None else noise_levels(keys, dataset.column(shown.genview))
    noise = None if levels is None else np.repeat(levels[rows][:, None], len(groups.views), axis=1)
    ungenerated = "the run used no generated views" if shown.run else "there are no generated views (viewkit generate)"
    add("noise", "noise level", noise, ungenerated)
    add("loss", "loss", groups.extra.get("loss"), "a run with --select hard --log-views records it (--run NAME)")
    return axes, absent
