"""Pairs selected by their overlap alone, the baseline of hard views: no forward pass (Ferreira et al., sec. 5.1)."""

from collections.abc import Sequence

import numpy as np

from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.plan import ViewPlan
from viewkit.pipelines.pairs.random import RandomViews
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.select import select_lowest_iou
from viewkit.pipelines.views.recipe import BOX


class LowestIouPairs:
    """Of a row's random views, the two whose crops overlap least; ties go to the earlier pair, lower index first."""

    def __init__(self, candidates: RandomViews) -> None:
        self.candidates = candidates

    def __call__(self, samples: Sequence[Sample], epoch: int) -> ViewPlan:
        plan = self.candidates(samples, epoch)
        selected = select_lowest_iou(plan.recipes[:, :, BOX].astype(np.float64))
        views = pair_index(plan.recipes.shape[1])[selected]  # n 2
        return ViewPlan(np.take_along_axis(plan.recipes, views[:, :, None], axis=1), plan.counts)
