"""Features of labelled images, for probes during and after a training."""

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from viewkit.pipelines.seeds import smallest
from viewkit.pipelines.training.samples import Sample, SampleReader
from viewkit.pipelines.views.recipe import column, neutral_recipes
from viewkit.pipelines.views.render import render
from viewkit.shards.column import Column
from viewkit.shards.row import Row

PROBE_ROWS = 10_000
"""At most so many images take part in a probe, those with the smallest key hashes."""
BATCH = 256

Pixels = tuple[float, float, float]


def labelled_features(
    embed: Callable[[Float[Tensor, "n 3 s s"]], Float[Tensor, "n d"]],
    images: Column,
    reader: SampleReader,
    *,
    side_px: int,
    mean: Pixels,
    std: Pixels,
    device: str,
) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]] | None:
    """Features of centre squares with their labels, on the CPU; None when an image has no label.

    Raises `DataError` for an image that does not decode.
    """
    keys = images.keys()
    chosen = set(smallest(keys, PROBE_ROWS))
    rows = (Row(key, images.fields(index)) for index, key in enumerate(keys) if key in chosen)
    features: list[Tensor] = []
    labels: list[int] = []
    while batch := list(islice(rows, BATCH)):
        if any("cls" not in row.fields for row in batch):
            return None
        labels += [int(row.fields["cls"]) for row in batch]
        samples = [reader(row) for row in batch]
        views = render(
            [sample.image.to(device) for sample in samples],
            centre_squares(samples, side_px),
            torch.arange(len(samples)),
            side_px=side_px,
            mean=mean,
            std=std,
        )
        features.append(embed(views).cpu())
    return (torch.cat(features), torch.tensor(labels)) if features else None


def centre_squares(samples: Sequence[Sample], side_px: int) -> Float32[np.ndarray, "n p"]:
    """Recipes of the largest centred square of every image."""
    recipes = neutral_recipes(len(samples), side_px)
    for recipe, sample in zip(recipes, samples, strict=True):
        height, width = sample.image.shape[:2]
        side = min(height, width)
        recipe[column("top")] = (height - side) / 2 / height
        recipe[column("left")] = (width - side) / 2 / width
        recipe[column("height")], recipe[column("width")] = side / height, side / width
    return recipes
