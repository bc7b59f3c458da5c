"""SimCLR (Chen et al. 2020a)."""

from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.nt_xent import nt_xent
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.heads import simclr_projector
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.training.framework import Encoded, Framework, Outputs


class SimCLR(Framework):
    """Backbone and projector on both views; the other rows' views are the negatives.

    decoupled: DCL, the positive is left out of the denominator (Yeh et al. 2022).
    """

    def __init__(self, backbone: Backbone, *, hidden: int, dim: int, tau: float, decoupled: bool, seed: int) -> None:
        super().__init__()
        self.backbone = backbone
        with seeded_weights(seed + 1):
            self.projector = simclr_projector(backbone.num_features, hidden, dim)
        self.tau, self.decoupled = tau, decoupled

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        assert encoded is not None
        z = self.projector(encoded[0])
        return Outputs(z=z, query=z, key=z)

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        assert one.query is not None and other.query is not None
        return nt_xent(one.query, other.query, self.tau, decoupled=self.decoupled)
