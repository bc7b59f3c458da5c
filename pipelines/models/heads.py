"""Projectors and predictors: small MLPs with batch norm, as MoCo v3 and SimSiam define them."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


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
