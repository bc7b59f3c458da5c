"""The momentum copy of a network: an exponential moving average of its weights (He et al. 2020, eq. 2)."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def momentum_copy(online: Module) -> Module:
    """A copy that no gradient reaches. It stays in train mode beside `online`, so its batch norms normalise by, and
    gather, the statistics of its own batches, as in MoCo v3."""
    twin = copy.deepcopy(online)
    for parameter in twin.parameters():
        parameter.requires_grad_(False)
    return twin


@torch.no_grad()
def move_towards(twin: nn.Module, online: nn.Module, momentum: float) -> None:
    """twin <- momentum * twin + (1 - momentum) * online, for every parameter; buffers are the twin's own."""
    ours: list[Tensor] = list(twin.parameters())
    theirs: list[Tensor] = list(online.parameters())
    torch._foreach_lerp_(ours, theirs, 1.0 - momentum)
