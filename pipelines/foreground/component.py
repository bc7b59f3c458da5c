"""The first principal component of patch tokens (GenView, eq. 3)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from viewkit.shards.errors import DataError
from viewkit.shards.spans import spanned

MIN_RATIO = 1.1
"""Below this ratio of the first eigenvalue to the second another sample may well give another direction."""
LARGEST_CHANNEL = 0.2
"""Share of the component's squared norm in one channel above which it may follow that channel alone."""


@dataclass(frozen=True)
class Component:
    """vector: unit eigenvector, canonical sign. mean: of the tokens. eigenvalue_ratio: first to second; near 1 the
    direction is unstable, None where the second is 0. explained: share of the variance."""

    vector: Float64[Tensor, " k"]
    mean: Float64[Tensor, " k"]
    eigenvalue_ratio: float | None
    explained: float

    @property
    def largest_channel(self) -> int:
        return int(self.vector.abs().argmax())

    @property
    def largest_channel_share(self) -> float:
        """Share of the squared norm in the largest channel; 0.23 in the released component of ViT-H/14."""
        return self.vector[self.largest_channel].square().item()

    def doubts(self) -> list[str]:
        """What speaks against trusting the direction, a sentence each."""
        found = []
        if self.eigenvalue_ratio is not None and self.eigenvalue_ratio < MIN_RATIO:
            found.append(
                f"the first eigenvalue is only {self.eigenvalue_ratio:.2f} times the second: another sample may give "
                "another component"
            )
        if self.largest_channel_share > LARGEST_CHANNEL:
            found.append(
                f"channel {self.largest_channel} holds {self.largest_channel_share:.0%} of the component: it may "
                "follow one channel of the encoder and not the image"
            )
        return found


@spanned("fit component")
def fit_component(covariance: Float64[Tensor, "k k"], mean: Float64[Tensor, " k"]) -> Component:
    values, vectors = torch.linalg.eigh(covariance)
    first, second = values[-1].item(), max(values[-2].item(), 0.0)
    if not first > 0:
        raise DataError("foreground: the encoder's tokens are all alike, there is no component; use another encoder")
    return Component(
        vector=canonical(vectors[:, -1]),
        mean=mean,
        eigenvalue_ratio=first / second if second > 0 else None,
        explained=first / values.clamp(min=0).sum().item(),
    )


def canonical(vector: Float64[Tensor, " k"]) -> Float64[Tensor, " k"]:
    """The one of v and -v whose coordinate of largest size is positive."""
    return vector if vector[vector.abs().argmax()] > 0 else -vector
