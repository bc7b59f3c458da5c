"""Pairs from the views that `viewkit score` or `viewkit draw` stored: any pair of the epoch's round (GenView)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pairs.candidates import view_sources
from viewkit.pipelines.pairs.column import SIMILARITIES
from viewkit.pipelines.pairs.generated import DrawnFrom
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.plan import ViewPlan, replace_missing
from viewkit.pipelines.pairs.random import RandomPairs
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.select import order_pairs, select_random
from viewkit.pipelines.views.recipe import GENERATED, ORIGINAL, SOURCE, check_recipes
from viewkit.pipelines.views.sample import sample_selection
from viewkit.shards.errors import ConfigError, DataError


class StoredPairs:
    """In epoch e one pair of the stored round e mod r: any one of them, in random order.

    fallback: gives the pair of a row that `score` rejected, counted as `missing_pairs`. Its alpha and generated hold
    for stored pairs too; the views of the other rows stay cropped from the image that they were scored on.
    candidates: which of the views were to be cropped from generated images. What is cropped from the original instead,
    because the image has no generated view, is counted as `missing_views`.
    quality: report the pairs' q, NaN where it is unknown (`missing_quality`). A q belongs to the pair as it was scored,
    so alpha must then be 0.
    """

    counted: tuple[str, ...] = ()

    def __init__(self, fallback: RandomPairs, *, quality: bool = False, candidates: DrawnFrom = "original") -> None:
        if quality and fallback.alpha:
            raise ConfigError(
                f"alpha is {fallback.alpha}, and weights are by quality, which holds for pairs as they were scored; "
                "set --alpha 0 and draw --candidates mixed, or --select random, whose pairs are rated as they are drawn"
            )
        self.fallback, self.quality, self.candidates = fallback, quality, candidates

    def __call__(self, samples: Sequence[Sample], epoch: int) -> ViewPlan:
        scored = [row for row, sample in enumerate(samples) if sample.recipes is not None]
        unscored = [row for row, sample in enumerate(samples) if sample.recipes is None]
        parts, missing = [], 0
        counted = dict.fromkeys(self.counted, 0)
        quality = np.full(len(samples), np.nan, dtype=np.float32)
        scores = None
        if scored:
            pairs, quality[scored], found, lacking, counted = self._sample([samples[row] for row in scored], epoch)
            parts.append(pairs)
            if all(samples[row].scores is not None for row in scored):
                scores = np.full((len(samples), found.shape[1]), np.nan, dtype=np.float32)
                scores[scored] = found
            missing += lacking
        if unscored:
            random = self.fallback([samples[row] for row in unscored], epoch)
            parts.append(random.recipes)
            missing += random.counts.get("missing_views", 0)
        recipes = np.concatenate(parts)[np.argsort([*scored, *unscored])]
        missing += replace_missing(recipes, samples)
        counts = {"missing_pairs": len(unscored), "missing_views": missing, **counted}
        if not self.quality:
            return ViewPlan(recipes, counts, scores=scores)
        counts["missing_quality"] = int(np.isnan(quality).sum())
        return ViewPlan(recipes, counts, quality=quality, scores=scores)

    def count(self, scores: Float32[np.ndarray, "n c s"]) -> dict[str, int]:
        """Numbers of rows to report, by the names in `counted`."""
        return {}

    def select(self, scores: Float32[np.ndarray, "n c s"], u: Float64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """The pair of every row, as its number in `pair_index`. scores: of drawn pairs zeros. u: uniforms in [0, 1)."""
        return select_random(scores.shape[1], u)

    def _sample(
        self, samples: Sequence[Sample], epoch: int
    ) -> tuple[
        Float32[np.ndarray, "n 2 p"], Float32[np.ndarray, " n"], Float32[np.ndarray, "n s"], int, dict[str, int]
    ]:
        """Pairs of rows that have them, `alpha` of them with generated views, their qualities and scores, how many
        views were to be cropped from generated images that do not exist, and `count`."""
        recipes, scores = _round_of(samples, epoch)
        ids = row_ids([sample.key for sample in samples])
        u = sample_selection(ids, seed=self.fallback.seed, stage=self.fallback.stage, round=epoch)  # n 4
        selected = self.select(scores, u[:, 0])
        views = order_pairs(selected, recipes.shape[1], u[:, 1])
        pairs = np.take_along_axis(recipes, views[:, :, None], axis=1)  # n 2 p
        generated = np.flatnonzero(u[:, 2] < self.fallback.alpha)
        pairs[generated, :, SOURCE] = GENERATED if self.fallback.generated == "both" else ORIGINAL
        pairs[generated, (u[generated, 3] * 2).astype(np.int64), SOURCE] = GENERATED
        lacking = np.array([sample.generated is None for sample in samples])
        lacking[generated] = False  # `replace_missing` counts these
        return (
            pairs,
            _quality_of(samples, epoch, selected, scores.shape[1]),
            scores[np.arange(len(samples)), selected],
            self._missing(views[lacking], recipes.shape[1]),
            self.count(scores),
        )

    def _missing(self, views: Int64[np.ndarray, "m 2"], num_views: int) -> int:
        """Of the stored pairs of rows without a generated image, the views that were to be cropped from one."""
        if self.candidates == "either":
            return len(views)
        return int((view_sources(self.candidates, num_views)[views] > ORIGINAL).sum())


def _round_of(
    samples: Sequence[Sample], epoch: int
) -> tuple[Float32[np.ndarray, "n v p"], Float32[np.ndarray, "n c s"]]:
    """Recipes and scores of the epoch's round; drawn pairs have zeros. `DataError` names the first row whose arrays do
    not fit each other."""
    recipes, scores = [], []
    for sample in samples:
        assert sample.recipes is not None
        where = f"column of pairs: row {sample.key}"
        check_recipes(sample.recipes, where)
        rounds, num_views = sample.recipes.shape[:2]
        needed = (rounds, len(pair_index(num_views)))
        found = np.zeros((*needed, SIMILARITIES + 2), np.float32) if sample.scores is None else sample.scores
        if num_views < 2 or found.shape[:2] != needed or found.shape[2] < SIMILARITIES + 2:
            raise DataError(
                f"{where} has scores of shape {found.shape} for recipes of shape {sample.recipes.shape}; "
                "delete the column and rerun 'viewkit score'"
            )
        recipes.append(sample.recipes[epoch % rounds])
        scores.append(found[epoch % rounds])
    return np.stack(recipes), np.stack(scores)


def _quality_of(
    samples: Sequence[Sample], epoch: int, selected: Int64[np.ndarray, " n"], num_pairs: int
) -> Float32[np.ndarray, " n"]:
    """q of every row's selected pair in the epoch's round; NaN where the column `quality` has no row."""
    found = np.full(len(samples), np.nan, dtype=np.float32)
    for row, sample in enumerate(samples):
        if sample.quality is None:
            continue
        assert sample.recipes is not None
        rounds = len(sample.recipes)
        if sample.quality.shape != (rounds, num_pairs):
            raise DataError(
                f"column 'quality': row {sample.key} has shape {sample.quality.shape}, needed {(rounds, num_pairs)} "
                "as in 'pairs'; delete the column and rerun 'viewkit quality'"
            )
        found[row] = sample.quality[epoch % rounds, selected[row]]
    return found
