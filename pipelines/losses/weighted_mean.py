"""The mean of rows' losses, where rows may count differently."""

from jaxtyping import Float
from torch import Tensor


def weighted_mean(losses: Float[Tensor, " n"], weights: Float[Tensor, " n"] | None) -> Float[Tensor, ""]:
    """Mean of weight x loss; weights should sum to n (GenView, eq. 13 as released); None: all 1."""
    return losses.mean() if weights is None else (weights * losses).mean()
