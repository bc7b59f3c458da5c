"""Which of a row's stored pairs a selection keeps: one function per name of `SELECT`, without trainer or files.

Every rule keeps at least one pair of every row, and a selection takes one of them uniformly. So the share of pairs with
some property after a selection is exact, without sampling: the mean over rows of its share among the kept ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int

from viewkit.pipelines.pairs.column import CONSISTENCY, LEVEL, SIMILARITIES, num_exits_of
from viewkit.pipelines.pairs.options import ORACLE_SHARE
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.select import (
    keep_common,
    keep_highest,
    keep_overlapping,
    overlapping_pairs,
    pair_overlaps,
    vs2fi_survivors,
)
from viewkit.pipelines.pairs.selections import SELECT
from viewkit.pipelines.views.recipe import BOX, SOURCE
from viewkit.shards.errors import ConfigError, DataError

SHARE_OF_BLOCKS = 7 / 12
"""The paper's k_AL = 7 for an estimator of 12 blocks, as a share, for estimators with fewer."""


@dataclass(frozen=True, eq=False)
class Facts:
    """What may be known of the c pairs of n rows, each an image's candidates of one round.

    overlaps: intersection over union of the crops, 0 where the two are of different images. scores: as in
    KEY.scores.npy, None where pairs were drawn and not scored. common: `common_content` of every pair, NaN where it is
    not known; None where nobody looked.
    """

    overlaps: Float64[np.ndarray, "n c"]
    scores: Float32[np.ndarray, "n c s"] | None = None
    common: Float64[np.ndarray, "n c"] | None = None

    def permuted(self, order: Int[np.ndarray, "n c"]) -> "Facts":
        """The facts of every row handed to other pairs of the row, together: the placebo of any rule."""
        return Facts(
            np.take_along_axis(self.overlaps, order, axis=1),
            None if self.scores is None else np.take_along_axis(self.scores, order[:, :, None], axis=1),
            None if self.common is None else np.take_along_axis(self.common, order, axis=1),
        )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Thresholds of the rules that have some. k_al: None for `SHARE_OF_BLOCKS` of the estimator's blocks."""

    k_sc: float = 0.0
    k_al: float | None = None
    oracle_share: float = ORACLE_SHARE


@dataclass(frozen=True, eq=False)
class Kept:
    """At least one pair of every row. counted: name -> rows to report, e.g. those without a pair of k_sc."""

    pairs: Bool[np.ndarray, "n c"]
    counted: Mapping[str, Bool[np.ndarray, " n"]] = field(default_factory=dict)


def facts_of(
    recipes: Float32[np.ndarray, "n v p"],
    scores: Float32[np.ndarray, "n c s"] | None = None,
    common: Float64[np.ndarray, "n c"] | None = None,
) -> Facts:
    """Facts of one round of n rows. Crops of different images, an image and its generated one, have no overlap."""
    first, second = pair_index(recipes.shape[1]).T
    of_one_image = recipes[:, first, SOURCE] == recipes[:, second, SOURCE]
    overlaps = pair_overlaps(recipes[:, :, BOX].astype(np.float64))
    return Facts(np.where(of_one_image, overlaps, 0.0), scores, common)


def keep_pairs(select: str, facts: Facts, limits: Limits | None = None) -> Kept:
    """What the selection called `select` keeps. `ConfigError` where it is none of stored pairs, `DataError` where the
    facts lack what it reads."""
    selection = SELECT.get(select)
    if selection is None or not selection.stored:
        names = ", ".join(name for name, each in SELECT.items() if each.stored)
        raise ConfigError(f"select is '{select}'; of stored pairs it must be one of {names}")
    known = {"scores": facts.scores is not None, "objects": facts.common is not None, "overlaps": True}
    if lacking := [need for need in selection.needs if not known[need]]:
        raise DataError(f"select is '{select}' and of the pairs no {' and no '.join(lacking)} are known")
    kept: Kept = selection.load_rule()(facts, limits or Limits())
    return kept


def every_pair(facts: Facts, limits: Limits) -> Kept:
    """Any pair."""
    return Kept(np.ones(facts.overlaps.shape, dtype=bool))


def vs2fi(facts: Facts, limits: Limits) -> Kept:
    """Both of VS-2FI's filters. Semantic Consistency alone: k_al 1. Alignment Level alone: k_sc 0."""
    assert facts.scores is not None
    k_al = SHARE_OF_BLOCKS * num_exits_of(facts.scores) if limits.k_al is None else limits.k_al
    consistency, level = facts.scores[:, :, CONSISTENCY], facts.scores[:, :, LEVEL]
    kept = vs2fi_survivors(consistency, level, limits.k_sc, k_al)
    return Kept(kept, {"relaxed_pairs": consistency.max(axis=1) < limits.k_sc})


def similar(facts: Facts, limits: Limits) -> Kept:
    """The pair that is most alike to the estimator's head."""
    return Kept(keep_highest(similarity_of(facts)))


def overlapping(facts: Facts, limits: Limits) -> Kept:
    """Pairs whose crops share area; all pairs where none do."""
    return Kept(keep_overlapping(facts.overlaps), without_overlap(facts))


def most_overlapping(facts: Facts, limits: Limits) -> Kept:
    """The pair whose crops overlap most; the first where none do."""
    return Kept(keep_highest(facts.overlaps), without_overlap(facts))


def combined(facts: Facts, limits: Limits) -> Kept:
    """Of the pairs whose crops share area, or of all where none do, the one that is most alike to the head."""
    return Kept(keep_highest(similarity_of(facts), keep_overlapping(facts.overlaps)), without_overlap(facts))


def oracle(facts: Facts, limits: Limits) -> Kept:
    """Pairs that have at least `oracle_share` of their content in common, else the pair that has most.

    Counted: rows without such a pair, and rows of whose pairs nothing is known, which keep all.
    """
    assert facts.common is not None
    unknown = np.isnan(facts.common).all(axis=1)
    best = np.nan_to_num(facts.common, nan=-1.0).max(axis=1)
    kept = keep_common(facts.common, limits.oracle_share)
    return Kept(kept, {"relaxed_pairs": ~unknown & (best < limits.oracle_share), "missing_truth": unknown})


def without_overlap(facts: Facts) -> Mapping[str, Bool[np.ndarray, " n"]]:
    """Rows of which no pair overlaps."""
    return {"relaxed_pairs": np.asarray(~overlapping_pairs(facts.overlaps).any(axis=1))}


def similarity_of(facts: Facts) -> Float[np.ndarray, "n c"]:
    """Cosine under the estimator's head. `DataError` where it is not a number."""
    assert facts.scores is not None
    found = facts.scores[:, :, SIMILARITIES]
    if (wrong := np.flatnonzero(np.isnan(found).any(axis=1))).size:
        raise DataError(f"select: a similarity of row {wrong[0]} is not a number; score the pairs again")
    return found
