"""Barlow Twins: the cross-correlation of two views' outputs should be the identity."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import gather


def barlow_twins(z1: Float[Tensor, "n d"], z2: Float[Tensor, "n d"], *, redundancy: float) -> Float[Tensor, ""]:
    """sum_i (1 - C_ii)^2 + redundancy * sum_{i != j} C_ij^2 (Zbontar et al. 2021, eq. 1).

    C: products of outputs standardised over the batch of all processes, as by a batch norm (biased variance + 1e-5),
    divided by its rows. Computed in fp32, inside autocast too.
    """
    with torch.autocast(z1.device.type, enabled=False):
        z1, z2 = (F.batch_norm(gather(z.float()), None, None, training=True) for z in (z1, z2))
        c = z1.T @ z2 / len(z1)  # d d
        diagonal = c.diagonal()
        rest = c.square().sum() - diagonal.square().sum()
        return (1 - diagonal).square().sum() + redundancy * rest
