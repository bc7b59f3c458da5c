"""Pairs from the views that `viewkit score` or `viewkit draw` stored: one of those that a selection's rule keeps."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pairs.candidates import view_sources
from viewkit.pipelines.pairs.column import SIMILARITIES
from viewkit.pipelines.pairs.generated import DrawnFrom
from viewkit.pipelines.pairs.objects import common_content
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.plan import ViewPlan, replace_missing
from viewkit.pipelines.pairs.random import RandomPairs
from viewkit.pipelines.pairs.rules import Limits, facts_of, keep_pairs
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.select import order_pairs, select_kept
from viewkit.pipelines.pairs.selections import SELECT
from viewkit.pipelines.views.boxes import refitted
from viewkit.pipelines.views.recipe import BOX, GENERATED, ORIGINAL, SOURCE, check_recipes
from viewkit.pipelines.views.sample import sample_permutations, sample_selection
from viewkit.shards.errors import ConfigError, DataError


class StoredPairs:
    """In epoch e one pair of the stored round e mod r: any one that the selection keeps, in random order.

    select: name in `SELECT` of a selection of stored pairs, with the limits that its rule has. placebo: the rule sees
    what is known of a row's pairs in an order of its own for every epoch, so that it keeps as many and knows nothing.
    fallback: gives the pair of a row that `score` rejected, counted as `missing_pairs`. Its alpha and generated hold
    for stored pairs too, whose boxes are then fitted to the other image's shape; the views of the other rows stay
    cropped from the image that they were scored on.
    candidates: which of the views were to be cropped from generated images. What is cropped from the original instead,
    because the image has no generated view, is counted as `missing_views`.
    quality: report the pairs' q, NaN where it is unknown (`missing_quality`). A q belongs to the pair as it was scored,
    so alpha must then be 0.
    """

    def __init__(
        self,
        fallback: RandomPairs,
        select: str = "stored",
        limits: Limits | None = None,
        *,
        placebo: bool = False,
        quality: bool = False,
        candidates: DrawnFrom = "original",
    ) -> None:
        if quality and fallback.alpha:
            raise ConfigError(
                f"alpha is {fallback.alpha}, and weights are by quality, which holds for pairs as they were scored; "
                "set --alpha 0 and draw --candidates mixed, or --select random, whose pairs are rated as they are drawn"
            )
        self.fallback, self.quality, self.candidates = fallback, quality, candidates
        self.select, self.limits, self.placebo = select, limits or Limits(), placebo

    def __call__(self, samples: Sequence[Sample], epoch: int) -> ViewPlan:
        scored = [row for row, sample in enumerate(samples) if sample.recipes is not None]
        unscored = [row for row, sample in enumerate(samples) if sample.recipes is None]
        parts, missing = [], 0
        counted = dict.fromkeys(SELECT[self.select].counted, 0)
        quality = np.full(len(samples), np.nan, dtype=np.float32)
        scores = None
        if scored:
            pairs, quality[scored], found, lacking, counted = self._sample([samples[row] for row in scored], epoch)
            parts.append(pairs)
            if found is not None:
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

    def _sample(
        self, samples: Sequence[Sample], epoch: int
    ) -> tuple[
        Float32[np.ndarray, "n 2 p"], Float32[np.ndarray, " n"], Float32[np.ndarray, "n s"] | None, int, dict[str, int]
    ]:
        """Pairs of rows that have them, `alpha` of them with generated views, their qualities and scores (None of drawn
        ones), how many views were to be cropped from generated images that do not exist, and the numbers of rows that
        the rule counts."""
        recipes, scores = _round_of(samples, epoch)
        ids, seed, stage = row_ids([sample.key for sample in samples]), self.fallback.seed, self.fallback.stage
        u = sample_selection(ids, seed=seed, stage=stage, round=epoch)  # n 4
        facts = facts_of(recipes, scores, self._common(samples, recipes))
        num_pairs = facts.overlaps.shape[1]
        if self.placebo:
            facts = facts.permuted(sample_permutations(ids, num_pairs, seed=seed, stage=stage, round=epoch))
        kept = keep_pairs(self.select, facts, self.limits)
        selected = select_kept(kept.pairs, u[:, 0])
        views = order_pairs(selected, recipes.shape[1], u[:, 1])
        pairs = np.take_along_axis(recipes, views[:, :, None], axis=1)  # n 2 p
        scored_on = pairs[:, :, SOURCE].copy()
        generated = np.flatnonzero(u[:, 2] < self.fallback.alpha)
        pairs[generated, :, SOURCE] = GENERATED if self.fallback.generated == "both" else ORIGINAL
        pairs[generated, (u[generated, 3] * 2).astype(np.int64), SOURCE] = GENERATED
        _refit(pairs, scored_on, samples)
        lacking = np.array([sample.generated is None for sample in samples])
        lacking[generated] = False  # `replace_missing` counts these
        return (
            pairs,
            _quality_of(samples, epoch, selected, num_pairs),
            None if scores is None else scores[np.arange(len(samples)), selected],
            self._missing(views[lacking], recipes.shape[1]),
            {name: int(rows.sum()) for name, rows in kept.counted.items()},
        )

    def _common(
        self, samples: Sequence[Sample], recipes: Float32[np.ndarray, "n v p"]
    ) -> Float64[np.ndarray, "n c"] | None:
        """`common_content` of every pair, where the selection needs it."""
        if "objects" not in SELECT[self.select].needs:
            return None
        return np.stack(
            [
                common_content(sample.annotation, views, (sample.image.shape[0], sample.image.shape[1]))
                for sample, views in zip(samples, recipes, strict=True)
            ]
        )

    def _missing(self, views: Int64[np.ndarray, "m 2"], num_views: int) -> int:
        """Of the stored pairs of rows without a generated image, the views that were to be cropped from one."""
        if self.candidates == "either":
            return len(views)
        return int((view_sources(self.candidates, num_views)[views] > ORIGINAL).sum())


def _refit(
    pairs: Float32[np.ndarray, "n 2 p"], scored_on: Float32[np.ndarray, "n 2"], samples: Sequence[Sample]
) -> None:
    """Fit the boxes, in place, of views that are cropped from another image than they were scored on, where that has
    another shape: as for random pairs, areas and aspects then stay the policy's."""
    moved = []
    for row, view in np.argwhere(pairs[:, :, SOURCE] != scored_on):
        image, made = samples[row].image, samples[row].generated
        if made is not None and image.shape[0] * made.shape[1] != image.shape[1] * made.shape[0]:
            sizes = [tuple(image.shape[:2]), tuple(made.shape[:2])]
            moved.append((row, view, *(sizes if pairs[row, view, SOURCE] == GENERATED else sizes[::-1])))
    if not moved:
        return
    rows, views, old, new = (np.array(each) for each in zip(*moved, strict=True))
    pairs[rows, views, BOX] = refitted(pairs[rows, views, BOX].astype(np.float64), old, new)


def _round_of(
    samples: Sequence[Sample], epoch: int
) -> tuple[Float32[np.ndarray, "n v p"], Float32[np.ndarray, "n c s"] | None]:
    """Recipes and scores of the epoch's round; None where the pairs were drawn and have none. `DataError` names the
    first row whose arrays do not fit each other."""
    recipes, scores = [], []
    for sample in samples:
        assert sample.recipes is not None
        where = f"column of pairs: row {sample.key}"
        check_recipes(sample.recipes, where)
        rounds, num_views = sample.recipes.shape[:2]
        found = () if sample.scores is None else sample.scores.shape
        needed = (rounds, len(pair_index(num_views)))
        if num_views < 2 or (found and (found[:2] != needed or found[2] < SIMILARITIES + 2)):
            raise DataError(
                f"{where} has scores of shape {found} for recipes of shape {sample.recipes.shape}; "
                "delete the column and write it again"
            )
        recipes.append(sample.recipes[epoch % rounds])
        if sample.scores is not None:
            scores.append(sample.scores[epoch % rounds])
    return np.stack(recipes), np.stack(scores) if scores else None


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
