"""Early-exit projectors: one linear layer per block, behind stop-gradient (VS-2FI, sec. 3.2 and 4.1)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ExitProjectors(nn.Module):
    """z_l(x) = g_l(stop-grad(h_l(x))): g_l is a linear layer and a batch norm without scale and shift.

    The paper says "single-layer projector" and no more; MoCo v3 ends its heads in that batch norm, so these do too.
    """

    def __init__(self, widths: Sequence[int], dim: int) -> None:
        super().__init__()
        self.projectors = nn.ModuleList(
            nn.Sequential(nn.Linear(width, dim, bias=False), nn.BatchNorm1d(dim, affine=False)) for width in widths
        )

    def forward(self, taps: Sequence[Float[Tensor, "n _"]]) -> Float[Tensor, "n e d"]:
        """taps: the outputs h_l of every block. No gradient flows back into them."""
        return torch.stack([g(h.detach()) for g, h in zip(self.projectors, taps, strict=True)], dim=1)
