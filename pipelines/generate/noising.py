"""Noise on image embeddings: the forward process of unCLIP, one level for every row."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def squared_cosine(num_levels: int = 1000) -> Float[Tensor, " l"]:
    """Signal variance abar of every level: squared cosine with betas capped at 0.999 (Nichol & Dhariwal 2021, eq. 17).

    The schedule of the published unCLIP weights; backends that have a checkpoint read theirs instead.
    """
    t = torch.arange(num_levels + 1, dtype=torch.float64) / num_levels
    f = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square()
    betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
    return (1 - betas).cumprod(dim=0).float()


def add_noise(
    z: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"], abar: Float[Tensor, " l"]
) -> Float[Tensor, "n d"]:
    """sqrt(abar) z + sqrt(1 - abar) noise. Level 0 is not free of noise: 1 - abar[0] is 4e-5.

    z: standardised embeddings. level: 0 ... l - 1.
    """
    signal = abar.to(z)[level].unsqueeze(1)
    return signal.sqrt() * z + (1 - signal).sqrt() * noise


def standardise(e: Float[Tensor, "n d"], mean: Float[Tensor, " d"], std: Float[Tensor, " d"]) -> Float[Tensor, "n d"]:
    return (e - mean) / std
