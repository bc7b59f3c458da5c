"""SwAV: rows are assigned to prototypes in equal shares, and every view predicts another view's assignment."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import first_row, gather


@torch.no_grad()
def balanced_assignments(
    scores: Float[Tensor, "n k"],
    *,
    epsilon: float,
    rounds: int,
    queued: Float[Tensor, "m k"] | None = None,
) -> Float[Tensor, "n k"]:
    """Soft assignments of rows to prototypes, each row summing to 1 (Caron et al. 2020, eq. 3 to 5).

    Sinkhorn-Knopp on exp(scores / epsilon) of the rows of all processes and of `queued` ones, which are the same in
    all processes: rounds of making prototypes weigh the same, then rows. Without gradient; in logarithms, in fp32.
    """
    with torch.autocast(scores.device.type, enabled=False):
        own = scores.float()
        everyone = gather(own)
        log_q = (everyone if queued is None else torch.cat([everyone, queued.float()])) / epsilon
        for _ in range(rounds):
            log_q = log_q - torch.logsumexp(log_q, dim=0, keepdim=True)
            log_q = log_q - torch.logsumexp(log_q, dim=1, keepdim=True)
        return log_q[first_row(len(own)) :][: len(own)].exp()


def swapped_prediction(
    scores: Float[Tensor, "n k"], assignments: Float[Tensor, "n k"], tau: float
) -> Float[Tensor, " n"]:
    """-sum_k q_k log softmax(scores / tau)_k of every row (eq. 2). Computed in fp32, inside autocast too."""
    with torch.autocast(scores.device.type, enabled=False):
        return -(assignments * torch.log_softmax(scores.float() / tau, dim=1)).sum(dim=1)
