"""Optimisers by name, and which weights decay."""

from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

OptimiserName = Literal["sgd", "adamw"]


def parameter_groups(module: nn.Module, *, weight_decay: float, fixed_lr: bool = False) -> list[dict[str, Any]]:
    """Trained parameters of `module` in two groups: matrices and kernels decay; biases, norms and class tokens do not.

    fixed_lr: the loop leaves their learning rate at its peak (SimSiam's predictor).
    """
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            vector = parameter.ndim < 2 or name.endswith(("cls_token", "pos_embed", "reg_token"))
            (free if vector else decayed).append(parameter)
    groups = [(decayed, weight_decay), (free, 0.0)]
    return [
        {"params": parameters, "weight_decay": decay, "fixed_lr": fixed_lr}
        for parameters, decay in groups
        if parameters
    ]


def create_optimiser(name: OptimiserName, groups: list[dict[str, Any]]) -> Optimizer:
    """SGD with momentum 0.9, or AdamW with betas 0.9 and 0.999. Rates are set by `set_rates` before every step."""
    if name == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=0.9)
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.999))


def set_rates(optimiser: Optimizer, *, rate: float, peak: float) -> None:
    """`rate` for every group, `peak` for those with a fixed rate."""
    for group in optimiser.param_groups:
        group["lr"] = peak if group["fixed_lr"] else rate
