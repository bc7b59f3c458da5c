"""NT-Xent: every view is an anchor, its partner the positive, all other views of the batch are negatives."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import first_row, gather


def nt_xent(
    z1: Float[Tensor, "n d"], z2: Float[Tensor, "n d"], tau: float, *, decoupled: bool = False
) -> Float[Tensor, " n"]:
    """Mean of a row's two losses, l(2k-1, 2k) and l(2k, 2k-1) (Chen et al. 2020a, eq. 1 and alg. 1).

    Negatives are both views of all other rows of all processes. decoupled: the positive is left out of the
    denominator (Yeh et al. 2022, eq. 6). Computed in fp32, inside autocast too.
    """
    with torch.autocast(z1.device.type, enabled=False):
        z1, z2 = F.normalize(z1.float(), dim=1), F.normalize(z2.float(), dim=1)
        all1, all2 = gather(z1), gather(z2)
        one = _one_direction(z1, all1, all2, tau, decoupled)
        return (one + _one_direction(z2, all2, all1, tau, decoupled)) / 2


def _one_direction(
    z: Float[Tensor, "n d"], same: Float[Tensor, "m d"], other: Float[Tensor, "m d"], tau: float, decoupled: bool
) -> Float[Tensor, " n"]:
    own = torch.arange(len(z), device=z.device)
    place = own + first_row(len(z))
    logits = torch.cat([z @ other.T, z @ same.T], dim=1) / tau  # n (2 m)
    positive = logits[own, place]
    hidden = torch.zeros_like(logits, dtype=torch.bool)
    hidden[own, place + len(other)] = True  # a view is no negative of itself
    if decoupled:
        hidden[own, place] = True
    return torch.logsumexp(logits.masked_fill(hidden, -torch.inf), dim=1) - positive
