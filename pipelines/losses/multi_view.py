"""Several views of an image as one vector, and DSF: InfoNCE with the divergence-based similarity of groups of views
(Jeon et al. 2026), -D(queries || keys).

A group of m views is described by the mean of its unit vectors alone.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import first_row, gather, mean_over_processes
from viewkit.pipelines.losses.von_mises_fisher import VonMisesFisher, divergences, estimate_vmf, paired_divergences


def mean_of_views(views: Sequence[Float[Tensor, "n d"]]) -> Float[Tensor, "n d"]:
    """Mean of the unit vectors of m views (Jeon et al. 2026, eq. 4), in float32 at least.

    Its length, in [0, 1], says how far the views agree; its direction is that of Fea_avg's features and of the von
    Mises-Fisher estimate.
    """
    return torch.stack([F.normalize(_wide(view), dim=1) for view in views]).mean(dim=0)


def dsf_info_nce(
    q: Float[Tensor, "n p"],
    k: Float[Tensor, "n p"],
    *,
    queue: Float[Tensor, "m p"] | None = None,
    shrink: float = 0.95,
    exact: bool = False,
    tau: float = 1.0,
    plain_kappa: bool = False,
) -> Float[Tensor, " n"]:
    """-log softmax_j(-D(q_i || k_j) / tau) at j = i, for every row i (Jeon et al. 2026, eq. 12, where tau is 1).

    Always in fp32: the terms are far larger than their sum. Gradients flow through the queries only.

    q, k: means of each row's m unit query and key vectors. queue: unit mean directions of earlier keys, which then
    are the negatives, each with the mean kappa of the batch's queries and keys; None: the keys of all processes.
    exact: as in `divergences`; shrink, plain_kappa: as in `estimate_vmf`.
    """
    with torch.autocast(q.device.type, enabled=False):
        ours, theirs = (estimate_vmf(_wide(mean), shrink, divided=not plain_kappa) for mean in (q, k.detach()))
        positive = -paired_divergences(ours, theirs, exact=exact) / tau
        if queue is None:
            everyone = VonMisesFisher(gather(theirs.mu), gather(theirs.kappa), gather(theirs.length))
            own = torch.arange(len(q), device=q.device)
            negatives = -divergences(ours, everyone, exact=exact) / tau  # n m
            negatives = negatives.index_put((own, own + first_row(len(q))), negatives.new_full((), -torch.inf))
        else:
            kappa = mean_over_processes((ours.kappa.detach().mean() + theirs.kappa.mean()) / 2)
            stored = VonMisesFisher(_wide(queue.detach()), kappa.expand(len(queue)), kappa.new_zeros(len(queue)))
            negatives = -divergences(ours, stored, exact=exact) / tau
        # log(1 + sum of exp(negative - positive)): small losses keep their digits, unlike in a cross entropy.
        return F.softplus(torch.logsumexp(negatives, dim=1) - positive)


def _wide(x: Tensor) -> Tensor:
    """In float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
