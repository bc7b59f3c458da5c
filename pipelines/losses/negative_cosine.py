"""The loss of SimSiam and BYOL: negative cosine similarity to a target that no gradient reaches."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def negative_cosine(p: Float[Tensor, "n d"], z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """-cos(p_i, stop-grad(z_i)) of every row, in [-1, 1] (Chen & He 2021, eq. 1). Computed in fp32."""
    with torch.autocast(p.device.type, enabled=False):
        return -F.cosine_similarity(p.float(), z.detach().float(), dim=1)


def symmetric_negative_cosine(
    p1: Float[Tensor, "n d"], p2: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], z2: Float[Tensor, "n d"]
) -> Float[Tensor, " n"]:
    """D(p1, z2) / 2 + D(p2, z1) / 2 of every row (Chen & He 2021, eq. 2 and 4)."""
    return (negative_cosine(p1, z2) + negative_cosine(p2, z1)) / 2


def symmetric_square_distance(
    p1: Float[Tensor, "n d"], p2: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], z2: Float[Tensor, "n d"]
) -> Float[Tensor, " n"]:
    """|p1 - z2|^2 + |p2 - z1|^2 of vectors of length 1, in [0, 8] (Grill et al. 2020, eq. 2; both directions added)."""
    return 4 + 4 * symmetric_negative_cosine(p1, p2, z1, z2)
