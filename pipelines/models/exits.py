"""Early-exit projectors: one linear layer per block, behind stop-gradient (VS-2FI, sec. 3.2 and 4.1)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


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


class FrozenExits:
    """What `ExitProjectors` computes in evaluation mode, as one batched product for exits of one width (a ViT's).

    Each batch norm is folded into its linear layer: (W h - mean) / sqrt(var + eps) = W' h + b. The weights are copied
    when it is made, so later training of `exits` does not reach it. Exits of other widths run one by one.
    """

    def __init__(self, exits: ExitProjectors) -> None:
        self.exits = exits
        folded = [_fold(*projector.children()) for projector in exits.projectors]
        self.alike = len({weight.shape for weight, _ in folded}) == 1
        if self.alike:
            self.weight = torch.stack([weight.T for weight, _ in folded])  # e d k
            self.bias = torch.stack([bias for _, bias in folded])[:, None]  # e 1 k

    def __call__(self, taps: Sequence[Float[Tensor, "n _"]]) -> Float[Tensor, "n e d"]:
        """taps: the outputs h_l of every block."""
        if not self.alike:
            return self.exits(taps)
        return torch.baddbmm(self.bias, torch.stack(list(taps)), self.weight).transpose(0, 1)


@torch.no_grad()
def _fold(linear: nn.Module, norm: nn.Module) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """W' and b of a linear layer without bias and a batch norm without scale and shift after it; made in fp64."""
    assert isinstance(linear, nn.Linear) and isinstance(norm, _BatchNorm)
    assert norm.running_mean is not None and norm.running_var is not None
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    weight = linear.weight.double() * scale[:, None]
    return weight.to(linear.weight.dtype), (-norm.running_mean.double() * scale).to(linear.weight.dtype)
