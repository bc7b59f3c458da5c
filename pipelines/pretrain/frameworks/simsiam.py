"""SimSiam (Chen & He 2021)."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.negative_cosine import symmetric_negative_cosine
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.heads import simsiam_predictor, simsiam_projector
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.training.framework import Encoded, Framework, Outputs
from viewkit.pipelines.training.optimisers import parameter_groups


class SimSiam(Framework):
    """Both views through backbone and projector; a predictor on one side, stop-gradient on the other, and swapped.

    The predictor's learning rate stays at its peak (the paper, sec. 4.2: it should adapt to the newest outputs).
    """

    def __init__(self, backbone: Backbone, *, hidden: int, dim: int, seed: int) -> None:
        super().__init__()
        self.backbone = backbone
        with seeded_weights(seed + 1):
            self.projector = simsiam_projector(backbone.num_features, dim)
            self.predictor = simsiam_predictor(dim, hidden)

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        assert encoded is not None
        z = self.projector(encoded[0])
        return Outputs(z=z, query=self.predictor(z), key=z.detach())

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        assert one.query is not None and other.query is not None and one.key is not None and other.key is not None
        return symmetric_negative_cosine(one.query, other.query, one.key, other.key)

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return [
            *parameter_groups(self.backbone, weight_decay=weight_decay),
            *parameter_groups(self.projector, weight_decay=weight_decay),
            *parameter_groups(self.predictor, weight_decay=weight_decay, fixed_lr=True),
        ]
