"""Pairs chosen from the candidates that `viewkit score` rendered and rated (VS-2FI, Alg. 1)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64

from viewkit.pipelines.seeds import row_ids
from viewkit.pipelines.training.pairs import SOURCE, Choice, RandomPairs, without_missing
from viewkit.pipelines.training.samples import Sample
from viewkit.pipelines.views.recipe import check_recipes
from viewkit.pipelines.views.sample import sample_selection
from viewkit.pipelines.views.select import Candidates, pairs_of, select_pairs
from viewkit.pipelines.vs2fi.scores import CONSISTENCY, LEVEL, SIMILARITIES
from viewkit.shards.errors import DataError

SHARE_OF_BLOCKS = 7 / 12
"""The paper's k_AL = 7 for an estimator of 12 blocks, as a share, for those with fewer."""


class Vs2fiPairs:
    """In epoch e the stored round e mod r: one of the pairs that both filters keep, in random order.

    k_al: None for `SHARE_OF_BLOCKS` of the estimator's. alpha: as in `RandomPairs`; views that `score` itself cut from
    generated images stay so. A row that `score` rejected gives a random pair instead, counted as `missing_pairs`.
    """

    def __init__(self, fallback: RandomPairs, *, k_sc: float, k_al: float | None) -> None:
        self.fallback, self.k_sc, self.k_al = fallback, k_sc, k_al

    def __call__(self, samples: Sequence[Sample], epoch: int) -> Choice:
        scored = np.array([sample.recipes is not None for sample in samples])
        lacking = [sample for sample, there in zip(samples, scored, strict=True) if not there]
        rated = [sample for sample, there in zip(samples, scored, strict=True) if there]
        parts = [self.choose(rated, epoch)] if rated else []
        missing = 0
        if lacking:
            random = self.fallback(lacking, epoch)
            parts.append(random.recipes)
            missing += random.counts.get("missing_views", 0)
        recipes = np.concatenate(parts)[np.argsort(np.argsort(~scored, kind="stable"))]
        missing += without_missing(recipes, samples)
        return Choice(recipes, {"missing_pairs": len(lacking), "missing_views": missing})

    def choose(self, samples: Sequence[Sample], epoch: int) -> Float32[np.ndarray, "n 2 p"]:
        """The chosen pairs of rows that have scores, with one view in `alpha` of them turned to the generated image."""
        recipes, scores = _round_of(samples, epoch)
        num_views = recipes.shape[1]
        blocks = scores.shape[2] - SIMILARITIES - 1
        draws = self.draw(samples, epoch)
        views = select_pairs(
            "vs2fi",
            Candidates(
                num_views=num_views,
                consistency=scores[:, :, CONSISTENCY],
                levels=scores[:, :, LEVEL],
                k_sc=self.k_sc,
                k_al=SHARE_OF_BLOCKS * blocks if self.k_al is None else self.k_al,
            ),
            draws,
        )
        chosen = np.take_along_axis(recipes, views[:, :, None], axis=1)  # n 2 p
        generated = np.flatnonzero(draws[:, 2] < self.fallback.alpha)
        chosen[generated, (draws[generated, 3] * 2).astype(np.int64), SOURCE] = 1
        return chosen

    def draw(self, samples: Sequence[Sample], epoch: int) -> Float64[np.ndarray, "n 4"]:
        """Which pair, its order, whether one view comes from the generated image, and which one."""
        ids = row_ids([sample.key for sample in samples])
        return sample_selection(ids, seed=self.fallback.seed, stage=self.fallback.stage, round=epoch)


def _round_of(
    samples: Sequence[Sample], epoch: int
) -> tuple[Float32[np.ndarray, "n v p"], Float32[np.ndarray, "n c s"]]:
    """Recipes and scores of the epoch's round, row by row; `DataError` names the first row that does not fit."""
    recipes, scores = [], []
    for sample in samples:
        assert sample.recipes is not None and sample.scores is not None
        where = f"column 'pairs': row {sample.key}"
        check_recipes(sample.recipes, where)
        rounds, num_views = sample.recipes.shape[:2]
        if sample.scores.shape[:2] != (rounds, len(pairs_of(num_views))) or sample.scores.shape[2] < SIMILARITIES + 2:
            raise DataError(
                f"{where} has scores of shape {sample.scores.shape} for recipes of shape {sample.recipes.shape}; "
                "delete the column and rerun 'viewkit score'"
            )
        recipes.append(sample.recipes[epoch % rounds])
        scores.append(sample.scores[epoch % rounds])
    return np.stack(recipes), np.stack(scores)
