"""The momentum copy of a network: an exponential moving average of its weights (He et al. 2020, eq. 2)."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from viewkit.pipelines.models.dropping import drop_paths

Module = TypeVar("Module", bound=nn.Module)


def momentum_copy(online: Module) -> Module:
    """A copy that no gradient reaches. It stays in train mode beside `online`, so its batch norms normalise by, and
    gather, the statistics of its own batches, as in MoCo v3. It drops no blocks (DINO's teacher)."""
    copied = copy.deepcopy(online)
    for module in drop_paths(copied):
        module.drop_prob = 0.0
    for parameter in copied.parameters():
        parameter.requires_grad_(False)
    return copied


@torch.no_grad()
def move_towards(copied: nn.Module, online: nn.Module, momentum: float) -> None:
    """copied <- momentum * copied + (1 - momentum) * online, for every parameter; buffers stay the copy's own."""
    ours: list[Tensor] = list(copied.parameters())
    theirs: list[Tensor] = list(online.parameters())
    torch._foreach_lerp_(ours, theirs, 1.0 - momentum)
