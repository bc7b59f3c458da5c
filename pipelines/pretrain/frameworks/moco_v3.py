"""MoCo v3 (Chen, Xie & He 2021)."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.info_nce import symmetric_info_nce
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.heads import moco_v3_predictor, moco_v3_projector
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.models.momentum import momentum_copy, move_towards
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.schedules import cosine_momentum


class MoCoV3(Framework):
    """Queries: backbone, projector, predictor. Keys: momentum copy of backbone and projector. Symmetric InfoNCE with
    the factor 2 tau; the other rows of the batch are the negatives.

    steps: of the whole training, over which the momentum rises to 1.
    """

    def __init__(
        self, backbone: Backbone, *, hidden: int, dim: int, tau: float, momentum: float, steps: int, seed: int
    ) -> None:
        super().__init__()
        self.backbone = backbone
        layers = 3 if backbone.kind == "vit" else 2
        with seeded_weights(seed + 1):
            self.projector = moco_v3_projector(backbone.num_features, hidden, dim, layers=layers)
            self.predictor = moco_v3_predictor(dim, hidden, end_norm=backbone.kind == "vit")
        self.momentum_backbone = momentum_copy(self.backbone)
        self.momentum_projector = momentum_copy(self.projector)
        self.tau, self.momentum, self.steps = tau, momentum, steps

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    def loss(
        self,
        views1: Float[Tensor, "n 3 s s"],
        views2: Float[Tensor, "n 3 s s"],
        weights: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, ""]:
        z1, z2 = self.projector(self.backbone(views1)), self.projector(self.backbone(views2))
        with torch.no_grad():
            k1 = self.momentum_projector(self.momentum_backbone(views1))
            k2 = self.momentum_projector(self.momentum_backbone(views2))
        self.outputs = z1.detach()
        return symmetric_info_nce(self.predictor(z1), self.predictor(z2), k1, k2, self.tau, weights=weights)

    def after_step(self) -> None:
        """Moves the momentum encoder: before the next keys, as the released code does."""
        m = cosine_momentum(self.step, steps=self.steps, start=self.momentum)
        move_towards(self.momentum_backbone, self.backbone, m)
        move_towards(self.momentum_projector, self.projector, m)
