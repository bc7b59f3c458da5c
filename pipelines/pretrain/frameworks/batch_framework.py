"""What frameworks share whose loss is one number of a whole batch."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.heads import expander
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.training.framework import Encoded, Framework, Outputs


class BatchFramework(Framework):
    """Backbone and expander on both views; `batch_loss` compares the outputs of all rows of all processes."""

    per_row: ClassVar[bool] = False

    def __init__(self, backbone: Backbone, *, hidden: int, dim: int, seed: int) -> None:
        super().__init__()
        self.backbone = backbone
        with seeded_weights(seed + 1):
            self.projector = expander(backbone.num_features, hidden, dim)

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        assert encoded is not None
        z = self.projector(encoded[0])
        return Outputs(z=z, query=z, key=z)

    @abstractmethod
    def batch_loss(self, z1: Float[Tensor, "n d"], z2: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
        """The loss of two views of all rows; the same number in every process."""

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        """Raises `TypeError`: a covariance belongs to the batch, not to a row."""
        raise TypeError(f"{type(self).__name__} has no loss of a single row")

    def loss_of(self, outputs: Sequence[Outputs], weights: Float[Tensor, " n"] | None) -> Float[Tensor, ""]:
        """With 2 m views the mean over the m x m pairs of the two halves. Raises `TypeError` for weights."""
        if weights is not None:
            raise TypeError(f"{type(self).__name__} has no loss of a single row that could be weighted")
        z = [each.z for each in outputs if each.z is not None]
        half = len(z) // 2
        return torch.stack([self.batch_loss(one, other) for one in z[:half] for other in z[half:]]).mean()
