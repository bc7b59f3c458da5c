"""VICReg: views agree (invariance), outputs spread (variance), outputs say different things (covariance)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import gather


@dataclass(frozen=True)
class VICRegTerms:
    """The three terms before their weights: a mean square, the mean of both views' hinges, the sum of both views'
    covariances."""

    invariance: Float[Tensor, ""]
    variance: Float[Tensor, ""]
    covariance: Float[Tensor, ""]


def vicreg_terms(x: Float[Tensor, "n d"], y: Float[Tensor, "n d"]) -> VICRegTerms:
    """Terms of the batch of all processes (Bardes et al. 2022, eq. 1 to 5), the same number in each of them.

    The hinges are averaged over the views, as in the released code; the paper's eq. 6 adds them. Unbiased variances
    under the root plus 1e-4. Computed in fp32, inside autocast too.
    """
    with torch.autocast(x.device.type, enabled=False):
        x, y = gather(x.float()), gather(y.float())
        return VICRegTerms(F.mse_loss(x, y), (_hinge(x) + _hinge(y)) / 2, _covariance(x) + _covariance(y))


def vicreg(
    x: Float[Tensor, "n d"], y: Float[Tensor, "n d"], *, invariance: float, variance: float, covariance: float
) -> Float[Tensor, ""]:
    """The weighted sum of the terms (eq. 6; 25, 25 and 1 there)."""
    terms = vicreg_terms(x, y)
    return invariance * terms.invariance + variance * terms.variance + covariance * terms.covariance


def _hinge(x: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    return F.relu(1 - torch.sqrt(x.var(dim=0) + 1e-4)).mean()


def _covariance(x: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """Squares of the entries off the diagonal, summed and divided by d."""
    x = x - x.mean(dim=0)
    c = x.T @ x / (len(x) - 1)  # d d
    return (c.square().sum() - c.diagonal().square().sum()) / x.shape[1]
