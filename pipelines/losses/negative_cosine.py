"""The loss of SimSiam: negative cosine similarity to a target that no gradient reaches (Chen & He 2021, eq. 1)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def negative_cosine(
    p: Float[Tensor, "n d"], z: Float[Tensor, "n d"], *, weights: Float[Tensor, " n"] | None = None
) -> Float[Tensor, ""]:
    """Mean over rows of -cos(p_i, stop-grad(z_i)), in [-1, 1]. weights: multiply the rows' losses before the mean."""
    with torch.autocast(p.device.type, enabled=False):
        losses = -F.cosine_similarity(p.float(), z.detach().float(), dim=1)
        return losses.mean() if weights is None else (weights * losses).mean()


def symmetric_negative_cosine(
    p1: Float[Tensor, "n d"],
    p2: Float[Tensor, "n d"],
    z1: Float[Tensor, "n d"],
    z2: Float[Tensor, "n d"],
    *,
    weights: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, ""]:
    """D(p1, z2) / 2 + D(p2, z1) / 2 (Chen & He 2021, eq. 2 and 4)."""
    return (negative_cosine(p1, z2, weights=weights) + negative_cosine(p2, z1, weights=weights)) / 2
