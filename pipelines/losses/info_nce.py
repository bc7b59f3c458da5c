"""InfoNCE: tell the key of the same image from the keys of other images (van den Oord et al. 2018)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import first_row, gather


def info_nce(
    q: Float[Tensor, "n d"], k: Float[Tensor, "n d"], tau: float, *, scaled: bool = False, decoupled: bool = False
) -> Float[Tensor, " n"]:
    """-log softmax_j(cos(q_i, k_j) / tau) at j = i, for every row i (He et al. 2020, eq. 1).

    The keys of all processes stand in the denominator, the positive among them, unless decoupled (Yeh et al. 2022,
    eq. 6). scaled: times 2 tau, as MoCo v3's released code does: the size of the gradient then depends less on tau.
    Computed in fp32, inside autocast too.
    """
    with torch.autocast(q.device.type, enabled=False):
        q, k = F.normalize(q.float(), dim=1), gather(F.normalize(k.float(), dim=1))
        own = torch.arange(len(q), device=q.device)
        positives = own + first_row(len(q))
        logits = q @ k.T / tau  # n m
        if decoupled:
            others = logits.index_put((own, positives), torch.tensor(-torch.inf, device=q.device))
            losses = torch.logsumexp(others, dim=1) - logits[own, positives]
        else:
            losses = F.cross_entropy(logits, positives, reduction="none")
        return 2 * tau * losses if scaled else losses


def symmetric_info_nce(
    q1: Float[Tensor, "n d"],
    q2: Float[Tensor, "n d"],
    k1: Float[Tensor, "n d"],
    k2: Float[Tensor, "n d"],
    tau: float,
    *,
    scaled: bool = True,
    decoupled: bool = False,
) -> Float[Tensor, " n"]:
    """Each view's queries against the other view's keys, both directions added (Chen et al. 2021, alg. 1)."""
    one = info_nce(q1, k2, tau, scaled=scaled, decoupled=decoupled)
    return one + info_nce(q2, k1, tau, scaled=scaled, decoupled=decoupled)


def queue_info_nce(
    q: Float[Tensor, "n d"],
    k: Float[Tensor, "n d"],
    queue: Float[Tensor, "m d"],
    tau: float,
    *,
    decoupled: bool = False,
) -> Float[Tensor, " n"]:
    """-log softmax at a row's own key, among it and the queue's keys (He et al. 2020, eq. 1 and alg. 1).

    queue: keys of length 1. Other rows of the batch are no negatives. decoupled: the denominator has the queue alone.
    Computed in fp32, inside autocast too.
    """
    with torch.autocast(q.device.type, enabled=False):
        q, k = F.normalize(q.float(), dim=1), F.normalize(k.float(), dim=1)
        positive = (q * k).sum(dim=1, keepdim=True) / tau  # n 1
        negatives = (q / tau) @ queue.float().T  # n m
        first = torch.zeros(len(q), dtype=torch.long, device=q.device)
        if decoupled:  # log sum exp through the cross entropy of any column, whose kernel is the faster one
            return F.cross_entropy(negatives, first, reduction="none") + negatives[:, 0] - positive[:, 0]
        return F.cross_entropy(torch.cat([positive, negatives], dim=1), first, reduction="none")


def exit_info_nce(
    q: Float[Tensor, "n e d"], k: Float[Tensor, "n e d"], tau: float, *, scaled: bool = True
) -> Float[Tensor, "n e"]:
    """-log P_l of every row and early exit l (VS-2FI, eq. 4): `info_nce` of q[:, l] and k[:, l] in one product."""
    with torch.autocast(q.device.type, enabled=False):
        q, k = F.normalize(q.float(), dim=2), gather(F.normalize(k.float(), dim=2))
        logits = torch.einsum("ned,med->enm", q, k) / tau
        positives = (torch.arange(q.shape[0], device=q.device) + first_row(q.shape[0])).expand(q.shape[1], -1)
        losses = F.cross_entropy(logits.flatten(0, 1), positives.flatten(), reduction="none")  # (e n)
        losses = losses.view(q.shape[1], -1).T  # n e
        return 2 * tau * losses if scaled else losses
