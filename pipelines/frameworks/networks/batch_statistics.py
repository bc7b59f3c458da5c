"""A loss of the outputs' statistics over the whole batch (VICReg, Barlow Twins)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.models.backbone import Backbone, Encoded
from viewkit.pipelines.training.framework import Framework, Outputs
from viewkit.pipelines.training.optimisers import parameter_groups


class BatchStatistics(Framework):
    """Backbone and expander on both views; `batch_loss` compares the outputs of all rows of all processes.

    batch_loss: of two views of all rows, [n d] each; the same number in every process. bias_rate: learning rate of
    biases and norms, as a share of the others'.
    """

    def __init__(
        self,
        backbone: Backbone,
        expander: nn.Module,
        batch_loss: Callable[[Tensor, Tensor], Tensor],
        *,
        bias_rate: float = 1.0,
    ) -> None:
        super().__init__()
        self.backbone, self.projector, self.batch_loss, self.bias_rate = backbone, expander, batch_loss, bias_rate

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        assert encoded is not None
        z = self.projector(encoded[0])
        return Outputs(z=z, query=z, key=z)

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        """Raises `TypeError`: a covariance belongs to the batch, not to a row."""
        raise TypeError("statistics of the batch have no loss of a single row")

    def loss_of(self, outputs: Sequence[Outputs], weights: Float[Tensor, " n"] | None) -> Float[Tensor, ""]:
        """With 2 m views the mean over the m x m pairs of the two sides. Raises `TypeError` for weights."""
        if weights is not None:
            raise TypeError("statistics of the batch have no loss of a single row that could be weighted")
        z = [each.z for each in outputs if each.z is not None]
        half = len(z) // 2
        return torch.stack([self.batch_loss(one, other) for one in z[:half] for other in z[half:]]).mean()

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return parameter_groups(self, weight_decay=weight_decay, bias_rate=self.bias_rate)
