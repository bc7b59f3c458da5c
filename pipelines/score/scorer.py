"""Batches of decoded images to recipes and scores: every image decoded once, every view rendered and embedded once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.pairs.candidates import RowSizes, sample_round
from viewkit.pipelines.pairs.order import pair_similarities
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import SOURCE
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.embeddings import embed_candidates
from viewkit.pipelines.vs2fi.scores import score_pairs


@dataclass(frozen=True)
class RowImages:
    """One row's images, uint8 [h w 3] on the device; generated is None where there is none, or none is needed."""

    key: str
    original: Tensor
    generated: Tensor | None = None

    @property
    def sizes(self) -> RowSizes:
        height, width = self.original.shape[:2]
        other = None if self.generated is None else (self.generated.shape[0], self.generated.shape[1])
        return RowSizes(self.key, (height, width), other)


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
        recipes = sample_round(
            self.policy,
            [row.sizes for row in batch],
            seed=self.config.seed,
            stage=self.stage,
            round=round,
            rounds=self.config.rounds,
            num_views=self.config.num_views,
            candidates=self.config.candidates,
        )
        source = recipes[..., SOURCE].astype(np.int64)
        row = np.arange(len(batch), dtype=np.int64)[:, None]
        originals = [row.original for row in batch]
        generated = [row.original if row.generated is None else row.generated for row in batch]
        images = originals if not source.any() else originals + generated
        top, exits = embed_candidates(
            self.estimator, images, recipes, row + len(batch) * source, self.policy.interpolation
        )
        similarities = torch.cat([pair_similarities(top.unsqueeze(2)), pair_similarities(exits)], dim=2)
        return recipes, similarities.cpu().numpy()
