"""Pairs by their overlap alone, for comparison with hard views: nothing is forwarded (Ferreira et al., sec. 5.1)."""

from collections.abc import Sequence

import numpy as np

from viewkit.pipelines.training.pairs import Choice, RandomViews
from viewkit.pipelines.training.samples import Sample
from viewkit.pipelines.views.recipe import BOX
from viewkit.pipelines.views.select import Candidates, pairs_of, select_lowest_iou


class LowestIouPairs:
    """Of the candidate views, the two whose crops overlap least; ties go to the earlier pair, the lower index first."""

    def __init__(self, candidates: RandomViews) -> None:
        self.candidates = candidates

    def __call__(self, samples: Sequence[Sample], epoch: int) -> Choice:
        choice = self.candidates(samples, epoch)
        num_views = choice.recipes.shape[1]
        boxes = choice.recipes[:, :, BOX].astype(np.float64)
        chosen = select_lowest_iou(Candidates(num_views=num_views, boxes=boxes), np.zeros(len(boxes)))
        pairs = pairs_of(num_views)[chosen]  # n 2
        return Choice(np.take_along_axis(choice.recipes, pairs[:, :, None], axis=1), choice.counts)
