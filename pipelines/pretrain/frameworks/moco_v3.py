"""MoCo v3 (Chen, Xie & He 2021)."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.info_nce import symmetric_info_nce
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.heads import moco_v3_predictor, moco_v3_projector
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.models.momentum import momentum_copy, move_towards
from viewkit.pipelines.training.framework import Encoded, Framework, Outputs
from viewkit.pipelines.training.schedules import cosine_momentum


class MoCoV3(Framework):
    """Queries: backbone, projector, predictor. Keys: momentum copy of backbone and projector. Symmetric InfoNCE with
    the factor 2 tau; the other rows of the batch are the negatives.

    decoupled: DCL (Yeh et al. 2022). steps: of the whole training, over which the momentum rises to 1.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        hidden: int,
        dim: int,
        tau: float,
        momentum: float,
        decoupled: bool = False,
        steps: int,
        seed: int,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        layers = 3 if backbone.kind == "vit" else 2
        with seeded_weights(seed + 1):
            self.projector = moco_v3_projector(backbone.num_features, hidden, dim, layers=layers)
            self.predictor = moco_v3_predictor(dim, hidden, end_norm=backbone.kind == "vit")
        self.momentum_backbone = momentum_copy(self.backbone)
        self.momentum_projector = momentum_copy(self.projector)
        self.tau, self.momentum, self.decoupled, self.steps = tau, momentum, decoupled, steps

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    def encode_target(self, views: Float[Tensor, "n 3 s s"]) -> Encoded:
        return (self.momentum_backbone(views),)

    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        assert encoded is not None and target is not None
        z = self.projector(encoded[0])
        with torch.no_grad():
            key = self.momentum_projector(target[0])
        return Outputs(z=z, query=self.predictor(z), key=key)

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        assert one.query is not None and other.query is not None and one.key is not None and other.key is not None
        return symmetric_info_nce(one.query, other.query, one.key, other.key, self.tau, decoupled=self.decoupled)

    def after_step(self) -> None:
        """Moves the momentum encoder: before the next keys, as the released code does."""
        m = cosine_momentum(self.step, steps=self.steps, start=self.momentum)
        move_towards(self.momentum_backbone, self.backbone, m)
        move_towards(self.momentum_projector, self.projector, m)
