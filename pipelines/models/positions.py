"""Fixed two-dimensional sine-cosine position codes of a ViT (MoCo v3, Chen et al. 2021, sec. 4)."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.shards.errors import ConfigError


def sincos_positions(rows: int, columns: int, width: int, *, num_prefix: int = 1) -> Float[Tensor, "1 t d"]:
    """Codes of `num_prefix` class tokens (all zero), then of the patches in reading order.

    A patch has width / 4 sines and cosines of its column and as many of its row, at wavelengths from 2 pi to
    10000 * 2 pi patches.
    """
    if width % 4:
        raise ConfigError(f"sine-cosine positions need a width that 4 divides, and the ViT's is {width}")
    omega = 10_000.0 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    x = torch.arange(columns, dtype=torch.float64)[:, None] * omega
    y = torch.arange(rows, dtype=torch.float64)[:, None] * omega
    across = torch.cat([x.sin(), x.cos()], dim=1).expand(rows, columns, width // 2)
    down = torch.cat([y.sin(), y.cos()], dim=1)[:, None].expand(rows, columns, width // 2)
    patches = torch.cat([across, down], dim=2).flatten(0, 1)  # (rows columns) d
    return torch.cat([torch.zeros(num_prefix, width, dtype=torch.float64), patches])[None].float()
