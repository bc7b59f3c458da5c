"""Weights of rows: the weighted mean of their losses, and weights by the quality of their pairs (GenView, eq. 13)."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import first_row, gather


def weighted_mean(losses: Float[Tensor, " n"], weights: Float[Tensor, " n"] | None) -> Float[Tensor, ""]:
    """Mean of weight x loss; weights should sum to n (GenView, eq. 13 as released); None: all 1."""
    return losses.mean() if weights is None else (weights * losses).mean()


@torch.no_grad()
def quality_weights(q: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """n softmax(q) over the batch of all processes (GenView, eq. 13 and 14).

    They sum to the number of rows there, and equal q give weights 1.

    Eq. 13 as printed sums to 1, which would divide the loss by n; the release multiplies by n, as here, but takes the
    softmax over each GPU's own rows. No gradient. NaN stands for a row of unknown quality: it has weight 1 and
    no part in the softmax of the others. All processes must give equally many rows.
    """
    mine = quality_weights_within(gather(q.detach().double()))[first_row(len(q)) :][: len(q)]
    return mine.to(q.dtype)


@torch.no_grad()
def quality_weights_within(q: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """`quality_weights` over these rows alone, whatever other processes have."""
    every = q.detach().double()
    known = ~every.isnan()
    log_sum = every.masked_fill(~known, -torch.inf).logsumexp(dim=0)
    weights = torch.exp(every - log_sum + known.sum().double().log())
    return torch.where(known, weights, 1.0).to(q.dtype)
