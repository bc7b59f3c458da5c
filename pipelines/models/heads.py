"""Projectors and predictors of the frameworks: small MLPs, most with batch norm."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def mlp(widths: Sequence[int], *, end_norm: bool, end_bias: bool = False) -> nn.Sequential:
    """Linear layers from ``widths[0]`` to ``widths[-1]``, batch norm and ReLU between them.

    end_norm: end in a batch norm without scale and shift. end_bias: the last layer has a bias (the others never do, a
    batch norm follows them).
    """
    layers: list[nn.Module] = []
    for before, after in pairwise(widths[:-1]):
        layers += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
    layers.append(nn.Linear(widths[-2], widths[-1], bias=end_bias))
    if end_norm:
        layers.append(nn.BatchNorm1d(widths[-1], affine=False))
    return nn.Sequential(*layers)


def moco_v3_projector(num_features: int, hidden: int, dim: int, *, layers: int) -> nn.Sequential:
    """Chen et al. 2021: three layers on a ViT, two on a ResNet, batch norm at the end (4096 hidden, 256 out)."""
    return mlp([num_features, *[hidden] * (layers - 1), dim], end_norm=True)


def moco_v3_predictor(dim: int, hidden: int, *, end_norm: bool) -> nn.Sequential:
    """Chen et al. 2021: two layers; the released code ends it in batch norm for ViTs and not for ResNets."""
    return mlp([dim, hidden, dim], end_norm=end_norm)


def simsiam_projector(num_features: int, dim: int) -> nn.Sequential:
    """Chen & He 2021, sec. 3: three layers as wide as the output (2048), batch norm at the end."""
    return mlp([num_features, dim, dim, dim], end_norm=True)


def simsiam_predictor(dim: int, hidden: int) -> nn.Sequential:
    """Chen & He 2021, sec. 3: a bottleneck (2048 -> 512 -> 2048) whose output layer has a bias and no batch norm."""
    return mlp([dim, hidden, dim], end_norm=False, end_bias=True)


def moco_v1_head(num_features: int, dim: int) -> nn.Module:
    """He et al. 2020, sec. 3.3: one linear layer (128 out)."""
    return nn.Linear(num_features, dim)


def moco_v2_head(num_features: int, hidden: int, dim: int) -> nn.Sequential:
    """Chen et al. 2020b: two layers (2048 hidden, 128 out), no batch norm."""
    return nn.Sequential(nn.Linear(num_features, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, dim))


def simclr_projector(num_features: int, hidden: int, dim: int) -> nn.Sequential:
    """Chen et al. 2020a, sec. 2.1: two layers (2048 hidden, 128 out); the released code ends in batch norm."""
    return mlp([num_features, hidden, dim], end_norm=True)


def byol_head(num_features: int, hidden: int, dim: int) -> nn.Sequential:
    """Grill et al. 2020, sec. 3.3: two layers (4096 hidden, 256 out), projector and predictor alike."""
    return mlp([num_features, hidden, dim], end_norm=False)


def swav_projector(num_features: int, hidden: int, dim: int) -> nn.Sequential:
    """Caron et al. 2020, appendix A: two layers (2048 hidden, 128 out)."""
    return mlp([num_features, hidden, dim], end_norm=False, end_bias=True)


def expander(num_features: int, hidden: int, dim: int) -> nn.Sequential:
    """Of VICReg (Bardes et al. 2022, sec. 4.2) and Barlow Twins (Zbontar et al. 2021, sec. 2.2): three wide layers."""
    return mlp([num_features, hidden, hidden, dim], end_norm=False)


class UnitPrototypes(nn.Module):
    """Products with `num` vectors of length 1, whatever the length of the weights that are trained.

    A weight-normed linear layer whose lengths are held at 1, as DINO's last layer. learn_lengths: they begin at 1 and
    are trained (DINO's ``norm_last_layer`` off).
    """

    def __init__(self, dim: int, num: int, *, learn_lengths: bool = False) -> None:
        super().__init__()
        self.lengths = nn.Parameter(torch.ones(num, 1)) if learn_lengths else None
        self.weight = nn.Parameter(torch.empty(num, dim))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        directions = F.normalize(self.weight, dim=1)
        return F.linear(x, directions if self.lengths is None else self.lengths * directions)


class DINOHead(nn.Module):
    """Caron et al. 2021, appendix C: three layers with GELU and no batch norm down to a bottleneck, length 1, and
    `UnitPrototypes` (2048 hidden, 256 in the bottleneck, 65 536 out)."""

    def __init__(self, num_features: int, hidden: int, bottleneck: int, dim: int, *, norm_last: bool = True) -> None:
        super().__init__()
        layers = [nn.Linear(num_features, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, bottleneck)]
        for layer in layers:
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        self.mlp = nn.Sequential(layers[0], nn.GELU(), layers[1], nn.GELU(), layers[2])
        self.last = UnitPrototypes(bottleneck, dim, learn_lengths=not norm_last)

    def forward(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n b"], Float[Tensor, "n k"]]:
        """The bottleneck, of length 1, and the logits."""
        z = F.normalize(self.mlp(x), dim=1)
        return z, self.last(z)
