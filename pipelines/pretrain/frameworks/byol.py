"""BYOL (Grill et al. 2020)."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.negative_cosine import symmetric_square_distance
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.heads import byol_head
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.models.momentum import momentum_copy, move_towards
from viewkit.pipelines.training.framework import Encoded, Framework, Outputs
from viewkit.pipelines.training.schedules import cosine_momentum


class BYOL(Framework):
    """Online: backbone, projector, predictor. Target: momentum copy of backbone and projector. No negatives.

    steps: of the whole training, over which the momentum rises to 1.
    """

    def __init__(self, backbone: Backbone, *, hidden: int, dim: int, momentum: float, steps: int, seed: int) -> None:
        super().__init__()
        self.backbone = backbone
        with seeded_weights(seed + 1):
            self.projector = byol_head(backbone.num_features, hidden, dim)
            self.predictor = byol_head(dim, hidden, dim)
        self.momentum_backbone = momentum_copy(self.backbone)
        self.momentum_projector = momentum_copy(self.projector)
        self.momentum, self.steps = momentum, steps

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
        return symmetric_square_distance(one.query, other.query, one.key, other.key)

    def after_step(self) -> None:
        """Moves the target network."""
        m = cosine_momentum(self.step, steps=self.steps, start=self.momentum)
        move_towards(self.momentum_backbone, self.backbone, m)
        move_towards(self.momentum_projector, self.projector, m)
