"""What a pair source decides before anything is rendered: the recipes of every row's views."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32

from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.views.recipe import ORIGINAL, SOURCE


@dataclass(frozen=True)
class ViewPlan:
    """The views of every row of a batch; the recipe's field `source` says which are cropped from the generated image.

    counts: numbers of rows or views to report, e.g. `missing_views`. sides_px: side of every view, where it is not the
    policy's. quality: q of every row's pair (GenView, eq. 12), NaN where it is unknown; None where nobody asked.
    scores: of every row's stored pair, named by `pairs.column.score_names`, NaN where the row has none; None where no
    stored, scored pairs are read.
    """

    recipes: Float32[np.ndarray, "n v p"]
    counts: Mapping[str, int] = field(default_factory=dict)
    sides_px: tuple[int, ...] | None = None
    quality: Float32[np.ndarray, " n"] | None = None
    scores: Float32[np.ndarray, "n s"] | None = None


RecipeSampler = Callable[[Sequence[Sample], int], ViewPlan]
"""Samples the views of every row in an epoch, by (seed, stage, key, epoch) alone: the order of rows does not matter."""


def replace_missing(recipes: Float32[np.ndarray, "n v p"], samples: Sequence[Sample]) -> int:
    """Crop from the original, in place, where the generated image does not exist; return the number of such views."""
    lacking = np.array([sample.generated is None for sample in samples])
    missing = lacking[:, None] & (recipes[:, :, SOURCE] > ORIGINAL)
    recipes[missing, SOURCE] = ORIGINAL
    return int(missing.sum())
