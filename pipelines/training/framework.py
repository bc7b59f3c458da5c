"""The one face that the loop sees of whatever is trained: two batches of views in, a loss out."""

from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.training.optimisers import parameter_groups


class Framework(nn.Module, ABC):
    """A self-supervised method: its networks, its loss, and what it does after a step. It knows nothing of selection.

    All state that a resumed run needs is parameters, buffers and `step`, the number of finished steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.outputs: Tensor | None = None

    @property
    @abstractmethod
    def encoder(self) -> Backbone:
        """What is trained for: the backbone that is kept."""

    @abstractmethod
    def loss(
        self,
        views1: Float[Tensor, "n 3 s s"],
        views2: Float[Tensor, "n 3 s s"],
        weights: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, ""]:
        """The mean loss of the pairs (views1[i], views2[i]); `weights` multiply the rows' losses and sum to n.

        Sets `outputs` to what `spread` looks at.
        """

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Parameter groups for the optimiser."""
        return parameter_groups(self, weight_decay=weight_decay)

    def after_step(self) -> None:
        """Called once after every step of the optimiser; `step` counts it already."""

    def numbers(self) -> dict[str, float]:
        """More numbers about the last loss, for metrics.jsonl."""
        return {}

    @torch.no_grad()
    def spread(self) -> float:
        """Standard deviation of the last outputs, normalised, averaged over dimensions, times sqrt(d).

        1 where outputs fill the sphere evenly, 0 where all are equal (Chen & He 2021, sec. 4.1).
        """
        if self.outputs is None:
            return float("nan")
        z = F.normalize(self.outputs.float(), dim=1)
        return float(z.std(dim=0, correction=0).mean() * z.shape[1] ** 0.5)
