"""Pairs sampled anew whose crops share area: no forward pass, and few false positives in images of several objects."""

from collections.abc import Sequence

import numpy as np

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pairs.plan import ViewPlan
from viewkit.pipelines.pairs.random import RandomViews
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.select import (
    keep_overlapping,
    order_pairs,
    overlapping_pairs,
    pair_overlaps,
    select_kept,
)
from viewkit.pipelines.views.recipe import BOX
from viewkit.pipelines.views.sample import sample_selection

CANDIDATES = 5
"""Views of a row among which a pair is looked for, as many as `score` stores."""


class OverlappingPairs:
    """Of a row's random views, any two whose crops share area, in random order; any two at all where none do."""

    def __init__(self, candidates: RandomViews) -> None:
        self.candidates = candidates

    def __call__(self, samples: Sequence[Sample], epoch: int) -> ViewPlan:
        plan = self.candidates(samples, epoch)
        ids = row_ids([sample.key for sample in samples])
        u = sample_selection(ids, seed=self.candidates.seed, stage=self.candidates.stage, round=epoch)  # n 4
        overlaps = pair_overlaps(plan.recipes[:, :, BOX].astype(np.float64))
        selected = select_kept(keep_overlapping(overlaps), u[:, 0])
        views = order_pairs(selected, plan.recipes.shape[1], u[:, 1])
        counts = {**plan.counts, "relaxed_pairs": int((~overlapping_pairs(overlaps).any(axis=1)).sum())}
        return ViewPlan(np.take_along_axis(plan.recipes, views[:, :, None], axis=1), counts)
