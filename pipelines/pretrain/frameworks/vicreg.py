"""VICReg (Bardes et al. 2022)."""

from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.vicreg import vicreg
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.pretrain.frameworks.batch_framework import BatchFramework


class VICReg(BatchFramework):
    """The three terms on the expander's outputs. Weights of the terms: 25, 25 and 1 in the paper."""

    def __init__(
        self,
        backbone: Backbone,
        *,
        hidden: int,
        dim: int,
        invariance: float,
        variance: float,
        covariance: float,
        seed: int,
    ) -> None:
        super().__init__(backbone, hidden=hidden, dim=dim, seed=seed)
        self.invariance, self.variance, self.covariance = invariance, variance, covariance

    def batch_loss(self, z1: Float[Tensor, "n d"], z2: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
        return vicreg(z1, z2, invariance=self.invariance, variance=self.variance, covariance=self.covariance)
