"""What the training loop sees of whatever it trains: a loss of a batch, and what happens around an update.

A self-supervised method is a `framework.Framework`; what generates images is one of these, too.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.models.backbone import Encoded
from viewkit.pipelines.training.optimisers import parameter_groups


class Trainable(nn.Module, ABC):
    """All state that a resumed run needs is parameters, buffers and `step`, the number of finished steps.

    features: of the last batch, whose rank is watched; None where there are none. slower: what to do when the loss is
    not finite, for the message.
    """

    slower: ClassVar[str] = "lower --lr or lengthen --warmup-epochs"

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.features: Tensor | None = None

    @abstractmethod
    def loss(
        self,
        views: Sequence[Tensor],
        weights: Float[Tensor, " n"] | None = None,
        targets: Sequence[Encoded | None] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss of a batch. views: view j of every row, [n 3 s s] each; weights: one per row.

        targets: what is known of the views already.
        """

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Parameter groups for the optimiser."""
        return parameter_groups(self, weight_decay=weight_decay)

    def before_update(self) -> None:
        """Called between the gradients and the optimiser's step, e.g. to keep a layer frozen for an epoch."""

    def after_step(self) -> None:
        """Called once after every step of the optimiser; `step` counts it already."""

    def numbers(self) -> dict[str, float]:
        """More numbers about the last loss, for metrics.jsonl."""
        return {}

    def spread(self) -> float | None:
        """How widely the last outputs are spread, 1 evenly and 0 not at all; None where outputs cannot collapse."""
        return None
