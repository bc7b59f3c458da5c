"""Batches of decoded images to recipes and scores: every image decoded once, every view rendered and embedded once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.pairs.order import pair_similarities
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import GENERATED, ORIGINAL
from viewkit.pipelines.views.sample import sizes_px
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.candidates import sample_candidates
from viewkit.pipelines.vs2fi.embeddings import embed_candidates
from viewkit.pipelines.vs2fi.scores import score_pairs


@dataclass(frozen=True)
class RowImages:
    """One row's images, uint8 [h w 3] on the device; generated is None where there is none, or none is needed."""

    key: str
    original: Tensor
    generated: Tensor | None = None


@dataclass(frozen=True)
class Scorer:
    """The frozen parts that turn images into scored candidate pairs."""

    estimator: Estimator
    histograms: Histograms
    policy: Policy
    config: ScoreConfig
    stage: str

    def score(
        self, batch: Sequence[RowImages]
    ) -> tuple[Float32[np.ndarray, "n r v p"], Float32[np.ndarray, "n r c s"]]:
        """Recipes and scores of at most `ROWS_PER_BATCH` rows; a row's numbers do not depend on the other rows."""
        rounds = [self.score_round(batch, round) for round in range(self.config.rounds)]
        recipes, similarities = (np.stack(part, axis=1) for part in zip(*rounds, strict=True))
        return recipes, score_pairs(similarities, self.histograms, self.config.gamma)

    def score_round(
        self, batch: Sequence[RowImages], round: int
    ) -> tuple[Float32[np.ndarray, "n v p"], Float32[np.ndarray, "n c k"]]:
        """Recipes of one round, and the similarities of its pairs: the head's, then every exit's."""
        originals = [row.original for row in batch]
        generated = [row.original if row.generated is None else row.generated for row in batch]
        source = self._sources(batch)
        recipes = sample_candidates(
            self.policy,
            [row.key for row in batch],
            sizes_px(originals),
            seed=self.config.seed,
            stage=self.stage,
            round=round,
            rounds=self.config.rounds,
            num_views=self.config.num_views,
            source=source,
            generated_sizes=sizes_px(generated),
        )
        row = np.arange(len(batch), dtype=np.int64)[:, None]
        images = originals if not source.any() else originals + generated
        top, exits = embed_candidates(
            self.estimator, images, recipes, row + len(batch) * source, self.policy.interpolation
        )
        similarities = torch.cat([pair_similarities(top.unsqueeze(2)), pair_similarities(exits)], dim=2)
        return recipes, similarities.cpu().numpy()

    def _sources(self, batch: Sequence[RowImages]) -> Int64[np.ndarray, "n v"]:
        """Which image each view is cropped from: by the config, and always the original where nothing was generated."""
        views = np.arange(self.config.num_views)
        wanted = {
            "original": np.full_like(views, ORIGINAL),
            "generated": np.full_like(views, GENERATED),
            "mixed": np.where(views % 2 == 1, GENERATED, ORIGINAL),
        }[self.config.candidates]
        has_generated = np.array([row.generated is not None for row in batch])
        return np.where(has_generated[:, None], wanted, ORIGINAL).astype(np.int64)
