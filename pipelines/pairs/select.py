"""Which of a row's c = v (v - 1) / 2 candidate pairs is trained on: one plain function per selection.

Pairs are numbered as in `pair_index`, and **ties go to the earlier pair**. Nothing is sampled here: the uniforms come
from `sample_selection`.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.recipe import EDGE
from viewkit.shards.errors import ConfigError, DataError


def select_lowest_iou(boxes: Float[np.ndarray, "n v 4"]) -> Int[np.ndarray, " n"]:
    """The pair whose crops overlap least (Hard View Selection, sec. 5.1). boxes: (top, left, height, width)."""
    return pair_overlaps(boxes).argmin(axis=1)


def vs2fi_survivors(
    consistency: Float[np.ndarray, "n c"], levels: Float[np.ndarray, "n c"], k_sc: float, k_al: float
) -> Bool[np.ndarray, "n c"]:
    """Pairs that pass both filters; at least one in every row (VS-2FI, Alg. 1).

    consistency: Semantic Consistency in [0, 1] (eq. 2). levels: Alignment Level in [1, number of exits + 1] (eq. 5).
    Consistency first, with min(k_sc, the row's maximum); then level with min(k_al, the maximum **over the
    survivors**). With both maxima over all candidates, as Alg. 1 can be read, nothing may be left: a pair with
    (0.995, level 3) beside one with (0.5, level 9).
    """
    for name, values in (("consistency", consistency), ("levels", levels)):
        if (wrong := np.flatnonzero(np.isnan(values).any(axis=1))).size:
            raise DataError(f"vs2fi: {name} of row {wrong[0]} is not a number; score the pairs again")
    kept = consistency >= np.minimum(k_sc, consistency.max(axis=1, keepdims=True))
    highest = np.where(kept, levels, -np.inf).max(axis=1, keepdims=True)
    return kept & (levels >= np.minimum(k_al, highest))


def keep_overlapping(overlaps: Float[np.ndarray, "n c"]) -> Bool[np.ndarray, "n c"]:
    """Pairs whose crops share area; all pairs of a row in which none do. overlaps: intersections over unions."""
    found = overlapping_pairs(overlaps)
    return found | ~found.any(axis=1, keepdims=True)


def overlapping_pairs(overlaps: Float[np.ndarray, "*n c"]) -> Bool[np.ndarray, "*n c"]:
    """Pairs whose crops share area, and not just an edge that float32 has rounded."""
    return overlaps > EDGE


def keep_highest(
    values: Float[np.ndarray, "n c"], among: Bool[np.ndarray, "n c"] | None = None
) -> Bool[np.ndarray, "n c"]:
    """The one pair with the highest value, `among` some of them if given (at least one in every row)."""
    found = np.where(True if among is None else among, values, -np.inf).argmax(axis=1)
    return np.arange(values.shape[1]) == found[:, None]


def keep_common(common: Float[np.ndarray, "n c"], least: float) -> Bool[np.ndarray, "n c"]:
    """Pairs with at least `least` content in common (`common_content`), else the pair with the most.

    NaN where it is not known: such pairs are kept only in rows where nothing is known of any pair, which keep all.
    """
    unknown = np.isnan(common)
    known = np.where(unknown, -1.0, common)
    enough = known >= least
    kept = np.where(enough.any(axis=1, keepdims=True), enough, keep_highest(known))
    return kept | unknown.all(axis=1, keepdims=True)


def select_kept(kept: Bool[np.ndarray, "n c"], u: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """One of the kept pairs of every row, uniformly."""
    rank = (u * kept.sum(axis=1)).astype(np.int64)
    return (kept.cumsum(axis=1) > rank[:, None]).argmax(axis=1)


def pair_overlaps(boxes: Float[np.ndarray, "n v 4"]) -> Float[np.ndarray, "n c"]:
    """Intersection over union of the crops of every pair; boxes in fractions of one image."""
    first, second = pair_index(boxes.shape[1]).T
    return overlap(boxes[:, first], boxes[:, second])


def order_pairs(selected: Int[np.ndarray, " n"], num_views: int, u: Float[np.ndarray, " n"]) -> Int[np.ndarray, "n 2"]:
    """View indices of the selected pairs, in random order: swapped where u < 1/2. `ConfigError` below two views."""
    if num_views < 2:
        raise ConfigError(f"num_views is {num_views}; a pair needs at least 2")
    views = pair_index(num_views)[selected]  # n 2
    return np.where((u < 0.5)[:, None], views[:, ::-1], views)
