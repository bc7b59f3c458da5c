"""The margin s+ - s- between the similarity of a positive pair and the mean of its negatives', as the loss has them
(Jeon et al. 2026, prop. 1 and fig. 5). Means over negatives are taken before the products, so it costs next to nothing.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.von_mises_fisher import VonMisesFisher, estimate_vmf, log_normaliser, mean_length


@torch.no_grad()
def cosine_margin(
    q: Float[Tensor, "n d"], k: Float[Tensor, "n d"], queue: Float[Tensor, "m d"] | None = None, *, tau: float
) -> Float[Tensor, ""]:
    """Mean over rows of cos(q_i, k_i) / tau less the mean of cos(q_i, k_j) / tau over the queue, or the other rows of
    this process; within -2 / tau ... 2 / tau."""
    with torch.autocast(q.device.type, enabled=False):
        q, k = F.normalize(q.float(), dim=1), F.normalize(k.float(), dim=1)
        others = _mean_of_others(k) if queue is None else queue.float().mean(dim=0)
        return ((q * (k - others)).sum(dim=1) / tau).mean()


@torch.no_grad()
def dsf_margin(
    q: Float[Tensor, "n d"],
    k: Float[Tensor, "n d"],
    queue: Float[Tensor, "m d"] | None = None,
    *,
    tau: float,
    shrink: float,
    exact: bool,
    plain_kappa: bool,
) -> Float[Tensor, ""]:
    """The same for -D(q_i || k_j) / tau, unbounded. q, k: means of unit vectors; arguments as in `dsf_info_nce`."""
    with torch.autocast(q.device.type, enabled=False):
        ours, theirs = (estimate_vmf(mean.float(), shrink, divided=not plain_kappa) for mean in (q, k))
        p = q.shape[1]
        normaliser, turned = log_normaliser(theirs.kappa, p), theirs.kappa[:, None] * theirs.mu  # n d
        if queue is None:
            negatives = _mean_of_others(normaliser[:, None])[:, 0], _mean_of_others(turned)
        else:
            kappa = (ours.kappa.mean() + theirs.kappa.mean()) / 2
            negatives = log_normaliser(kappa, p), kappa * queue.float().mean(dim=0)
        # D = F(kappa_j) - F(kappa_i) + A_i (kappa_i - kappa_j mu_i.mu_j); what is of i alone cancels in the difference.
        length = _length(ours, exact)
        gained = length * (ours.mu * (turned - negatives[1])).sum(dim=1)
        return ((gained - normaliser + negatives[0]) / tau).mean()


def _length(ours: VonMisesFisher, exact: bool) -> Float[Tensor, " n"]:
    return mean_length(ours.kappa, ours.mu.shape[1]) if exact else ours.length


def _mean_of_others(values: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Of every row the mean of all rows but its own."""
    return (values.sum(dim=0) - values) / max(1, len(values) - 1)
