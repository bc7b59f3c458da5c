"""Two views through one network and its heads, with or without a momentum copy (SimCLR, MoCo v3, BYOL, SimSiam)."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.models.backbone import Backbone, Encoded
from viewkit.pipelines.models.momentum import momentum_copy, move_towards
from viewkit.pipelines.training.framework import Framework, Outputs
from viewkit.pipelines.training.optimisers import parameter_groups
from viewkit.pipelines.training.schedules import cosine_momentum

PairLosses = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Queries of two views [n d], then their keys [n d], to the loss of every row [n]."""


class Siamese(Framework):
    """Queries: backbone, projector and, where there is one, predictor. Keys: the projections, behind stop-gradient
    where there is a predictor.

    fixed_predictor_lr: the predictor's learning rate stays at its peak.
    """

    def __init__(
        self,
        backbone: Backbone,
        projector: nn.Module,
        losses: PairLosses,
        *,
        predictor: nn.Module | None = None,
        fixed_predictor_lr: bool = False,
    ) -> None:
        super().__init__()
        self.backbone, self.projector, self.predictor = backbone, projector, predictor
        self.losses, self.fixed_predictor_lr = losses, fixed_predictor_lr

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        assert encoded is not None
        z = self.projector(encoded[0])
        if self.predictor is None:
            return Outputs(z=z, query=z, key=z)
        return Outputs(z=z, query=self.predictor(z), key=self.key(z, target))

    def key(self, z: Float[Tensor, "n d"], target: Encoded | None) -> Float[Tensor, "n d"]:
        """What the other view's queries are compared with; no gradient reaches it."""
        return z.detach()

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        assert one.query is not None and other.query is not None and one.key is not None and other.key is not None
        return self.losses(one.query, other.query, one.key, other.key)

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        if not self.fixed_predictor_lr or self.predictor is None:
            return super().groups(weight_decay)
        return [
            *parameter_groups(self.backbone, weight_decay=weight_decay),
            *parameter_groups(self.projector, weight_decay=weight_decay),
            *parameter_groups(self.predictor, weight_decay=weight_decay, fixed_lr=True),
        ]


class MomentumSiamese(Siamese):
    """Keys come from a momentum copy of backbone and projector, whose momentum rises to 1.

    steps: of the whole training, over which it rises.
    """

    def __init__(
        self,
        backbone: Backbone,
        projector: nn.Module,
        predictor: nn.Module,
        losses: PairLosses,
        *,
        momentum: float,
        steps: int,
    ) -> None:
        super().__init__(backbone, projector, losses, predictor=predictor)
        self.momentum_backbone, self.momentum_projector = momentum_copy(backbone), momentum_copy(projector)
        self.momentum, self.steps = momentum, steps

    def encode_target(self, views: Float[Tensor, "n 3 s s"]) -> Encoded:
        return (self.momentum_backbone(views),)

    def key(self, z: Float[Tensor, "n d"], target: Encoded | None) -> Float[Tensor, "n d"]:
        assert target is not None
        with torch.no_grad():
            return self.momentum_projector(target[0])

    def after_step(self) -> None:
        """Moves the momentum copy: before the next keys, as MoCo v3's released code does."""
        m = cosine_momentum(self.step, steps=self.steps, start=self.momentum)
        move_towards(self.momentum_backbone, self.backbone, m)
        move_towards(self.momentum_projector, self.projector, m)
