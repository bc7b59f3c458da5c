"""Pairs chosen from the candidates that `viewkit score` rendered and rated: any (GenView), or by VS-2FI, Alg. 1."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64

from viewkit.pipelines.seeds import row_ids
from viewkit.pipelines.training.pairs import SOURCE, Choice, RandomPairs, without_missing
from viewkit.pipelines.training.samples import Sample
from viewkit.pipelines.views.recipe import check_recipes
from viewkit.pipelines.views.sample import sample_selection
from viewkit.pipelines.views.select import Candidates, pairs_of, select_pairs
from viewkit.pipelines.vs2fi.scores import CONSISTENCY, LEVEL, SIMILARITIES
from viewkit.shards.errors import ConfigError, DataError

SHARE_OF_BLOCKS = 7 / 12
"""The paper's k_AL = 7 for an estimator of 12 blocks, as a share, for those with fewer."""


class StoredPairs:
    """In epoch e the stored round e mod r: any one of its pairs, in random order.

    alpha, generated: as in `RandomPairs`; the views of the other rows stay cut from what `score` cut them from.
    quality: give the pairs' q, NaN where nobody knows it (`missing_quality`); a q holds for the pair as it was scored,
    so alpha must be 0 then. A row that `score` rejected gives a random pair instead, counted as `missing_pairs`.
    """

    def __init__(self, fallback: RandomPairs, *, quality: bool = False) -> None:
        if quality and fallback.alpha:
            raise ConfigError(
                f"alpha is {fallback.alpha}, and weights are by quality, which holds for pairs as they were scored; "
                "set --alpha 0, and score --candidates mixed for views of generated images"
            )
        self.fallback, self.quality = fallback, quality

    def __call__(self, samples: Sequence[Sample], epoch: int) -> Choice:
        scored = np.array([sample.recipes is not None for sample in samples])
        lacking = [sample for sample, there in zip(samples, scored, strict=True) if not there]
        rated = [sample for sample, there in zip(samples, scored, strict=True) if there]
        back = np.argsort(np.argsort(~scored, kind="stable"))
        parts, qualities = [], [np.full(len(lacking), np.nan, np.float32)]
        missing = 0
        if rated:
            recipes, quality = self.choose(rated, epoch)
            parts, qualities = [recipes], [quality, *qualities]
        if lacking:
            random = self.fallback(lacking, epoch)
            parts.append(random.recipes)
            missing += random.counts.get("missing_views", 0)
        recipes = np.concatenate(parts)[back]
        missing += without_missing(recipes, samples)
        counts = {"missing_pairs": len(lacking), "missing_views": missing}
        if not self.quality:
            return Choice(recipes, counts)
        q = np.concatenate(qualities)[back]
        return Choice(recipes, {**counts, "missing_quality": int(np.isnan(q).sum())}, quality=q)

    def choose(
        self, samples: Sequence[Sample], epoch: int
    ) -> tuple[Float32[np.ndarray, "n 2 p"], Float32[np.ndarray, " n"]]:
        """The chosen pairs of rows that have scores, with views of `alpha` of them turned to the generated image, and
        their qualities."""
        recipes, scores = _round_of(samples, epoch)
        draws = self.draw(samples, epoch)
        views = self.select(recipes, scores, draws)
        chosen = np.take_along_axis(recipes, views[:, :, None], axis=1)  # n 2 p
        generated = np.flatnonzero(draws[:, 2] < self.fallback.alpha)
        both = self.fallback.generated == "both"
        chosen[generated, :, SOURCE] = 1 if both else 0
        chosen[generated, (draws[generated, 3] * 2).astype(np.int64), SOURCE] = 1
        return chosen, _quality_of(samples, epoch, views, recipes.shape[1])

    def select(
        self,
        recipes: Float32[np.ndarray, "n v p"],
        scores: Float32[np.ndarray, "n c s"],
        draws: Float64[np.ndarray, "n 4"],
    ) -> Int64[np.ndarray, "n 2"]:
        """The two views of every row, in their final order."""
        return select_pairs("random", Candidates(num_views=recipes.shape[1]), draws)

    def draw(self, samples: Sequence[Sample], epoch: int) -> Float64[np.ndarray, "n 4"]:
        """Which pair, its order, whether views come from the generated image, and which one if it is one."""
        ids = row_ids([sample.key for sample in samples])
        return sample_selection(ids, seed=self.fallback.seed, stage=self.fallback.stage, round=epoch)


class Vs2fiPairs(StoredPairs):
    """Of the stored pairs, one that both filters keep. k_al: None for `SHARE_OF_BLOCKS` of the estimator's."""

    def __init__(self, fallback: RandomPairs, *, k_sc: float, k_al: float | None, quality: bool = False) -> None:
        super().__init__(fallback, quality=quality)
        self.k_sc, self.k_al = k_sc, k_al

    def select(
        self,
        recipes: Float32[np.ndarray, "n v p"],
        scores: Float32[np.ndarray, "n c s"],
        draws: Float64[np.ndarray, "n 4"],
    ) -> Int64[np.ndarray, "n 2"]:
        blocks = scores.shape[2] - SIMILARITIES - 1
        candidates = Candidates(
            num_views=recipes.shape[1],
            consistency=scores[:, :, CONSISTENCY],
            levels=scores[:, :, LEVEL],
            k_sc=self.k_sc,
            k_al=SHARE_OF_BLOCKS * blocks if self.k_al is None else self.k_al,
        )
        return select_pairs("vs2fi", candidates, draws)


def _quality_of(
    samples: Sequence[Sample], epoch: int, views: Int64[np.ndarray, "n 2"], num_views: int
) -> Float32[np.ndarray, " n"]:
    """q of the pair of views of every row, in the epoch's round; NaN where the column `quality` has no row."""
    pairs = pairs_of(num_views)
    place = np.zeros((num_views, num_views), dtype=np.int64)
    place[pairs[:, 0], pairs[:, 1]] = place[pairs[:, 1], pairs[:, 0]] = np.arange(len(pairs))
    found = np.full(len(samples), np.nan, dtype=np.float32)
    for row, sample in enumerate(samples):
        if sample.quality is None:
            continue
        assert sample.recipes is not None
        rounds = len(sample.recipes)
        if sample.quality.shape != (rounds, len(pairs)):
            raise DataError(
                f"column 'quality': row {sample.key} has shape {sample.quality.shape}, needed {(rounds, len(pairs))} "
                "as in 'pairs'; delete the column and rerun 'viewkit quality'"
            )
        found[row] = sample.quality[epoch % rounds, place[views[row, 0], views[row, 1]]]
    return found


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
