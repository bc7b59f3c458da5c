"""InfoNCE: tell the key of the same image from the keys of other images (van den Oord et al. 2018)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def info_nce(
    q: Float[Tensor, "n d"],
    k: Float[Tensor, "m d"],
    tau: float,
    *,
    weights: Float[Tensor, " n"] | None = None,
    scaled: bool = False,
    first_key: int = 0,
) -> Float[Tensor, ""]:
    """Mean over rows i of -log softmax_j(cos(q_i, k_j) / tau) at j = first_key + i (He et al. 2020, eq. 1).

    All m keys stand in the denominator, the positive among them. weights: multiply the rows' losses before the mean;
    they should sum to n (GenView, eq. 13 as released). scaled: times 2 tau, as MoCo v3's released code does: the size
    of the gradient then depends less on tau. first_key: where this process's keys begin when k was gathered from all.
    Computed in fp32, inside autocast too.
    """
    with torch.autocast(q.device.type, enabled=False):
        q, k = F.normalize(q.float(), dim=1), F.normalize(k.float(), dim=1)
        positives = torch.arange(first_key, first_key + len(q), device=q.device)
        losses = F.cross_entropy(q @ k.T / tau, positives, reduction="none")
        loss = losses.mean() if weights is None else (weights * losses).mean()
        return 2 * tau * loss if scaled else loss


def symmetric_info_nce(
    q1: Float[Tensor, "n d"],
    q2: Float[Tensor, "n d"],
    k1: Float[Tensor, "m d"],
    k2: Float[Tensor, "m d"],
    tau: float,
    *,
    weights: Float[Tensor, " n"] | None = None,
    scaled: bool = True,
    first_key: int = 0,
) -> Float[Tensor, ""]:
    """Each view's queries against the other view's keys, both directions added (Chen et al. 2021, alg. 1)."""
    return info_nce(q1, k2, tau, weights=weights, scaled=scaled, first_key=first_key) + info_nce(
        q2, k1, tau, weights=weights, scaled=scaled, first_key=first_key
    )
