"""Barlow Twins (Zbontar et al. 2021)."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.barlow_twins import barlow_twins
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.pretrain.frameworks.batch_framework import BatchFramework
from viewkit.pipelines.training.optimisers import parameter_groups


class BarlowTwins(BatchFramework):
    """Cross-correlation on the expander's outputs. bias_rate: learning rate of biases and norms, as a share."""

    def __init__(
        self, backbone: Backbone, *, hidden: int, dim: int, redundancy: float, bias_rate: float, seed: int
    ) -> None:
        super().__init__(backbone, hidden=hidden, dim=dim, seed=seed)
        self.redundancy, self.bias_rate = redundancy, bias_rate

    def batch_loss(self, z1: Float[Tensor, "n d"], z2: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
        return barlow_twins(z1, z2, redundancy=self.redundancy)

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return parameter_groups(self, weight_decay=weight_decay, bias_rate=self.bias_rate)
