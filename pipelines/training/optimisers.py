"""Optimisers by name, and which weights decay."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from viewkit.pipelines.training.options import OptimiserName


def parameter_groups(
    module: nn.Module, *, weight_decay: float, fixed_lr: bool = False, bias_rate: float = 1.0
) -> list[dict[str, Any]]:
    """Trained parameters of `module` in two groups: matrices and kernels decay; biases, norms and class tokens do not.

    Only the former (`decays`) are adapted by LARS and follow a schedule of the weight decay. fixed_lr: the loop leaves
    their learning rate at its peak (SimSiam's predictor). bias_rate: what the latter's learning rate is multiplied by.
    """
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            vector = parameter.ndim < 2 or name.endswith(("cls_token", "pos_embed", "reg_token"))
            (free if vector else decayed).append(parameter)
    groups = [(decayed, weight_decay, True, 1.0), (free, 0.0, False, bias_rate)]
    return [
        {"params": parameters, "weight_decay": decay, "fixed_lr": fixed_lr, "decays": decays, "rate": rate}
        for parameters, decay, decays, rate in groups
        if parameters
    ]


class LARS(Optimizer):
    """SGD with momentum, where the step of every matrix is as long as a share of the matrix (You et al. 2017).

    For groups that decay: g <- g + weight_decay w, then g <- g * trust |w| / |g| (factor 1 where either is 0). For
    the others plain SGD. momentum buffer m <- momentum m + g; w <- w - lr m, as MoCo v3, VICReg and Barlow Twins do.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float = 0.0, *, momentum: float = 0.9, trust: float = 0.001
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "trust": trust, "weight_decay": 0.0, "decays": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update. Takes no closure."""
        assert closure is None
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            steps = [weight.grad for weight in weights]
            if group["decays"]:
                steps = list(torch._foreach_add(steps, weights, alpha=group["weight_decay"]))
                pairs = zip(torch._foreach_norm(weights), torch._foreach_norm(steps), strict=True)
                torch._foreach_mul_(steps, [_factor(w, g, group["trust"]) for w, g in pairs])
            for weight in weights:
                if "momentum_buffer" not in self.state[weight]:
                    self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
            buffers = [self.state[weight]["momentum_buffer"] for weight in weights]
            torch._foreach_mul_(buffers, group["momentum"])
            torch._foreach_add_(buffers, steps)
            torch._foreach_add_(weights, buffers, alpha=-group["lr"])


def _factor(weight_norm: torch.Tensor, step_norm: torch.Tensor, trust: float) -> torch.Tensor:
    whole = (weight_norm > 0) & (step_norm > 0)
    return torch.where(whole, trust * weight_norm / step_norm, torch.ones_like(weight_norm))


def create_optimiser(name: OptimiserName, groups: list[dict[str, Any]]) -> Optimizer:
    """SGD or LARS with momentum 0.9, or AdamW with betas 0.9 and 0.999. `set_rates` sets rates before every step."""
    if name == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=0.9)
    if name == "lars":
        return LARS(groups)
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.999))


def decay_all(groups: list[dict[str, Any]], weight_decay: float) -> list[dict[str, Any]]:
    """The groups with every weight decaying, vectors too."""
    return [{**group, "weight_decay": weight_decay, "decays": True} for group in groups]


def set_rates(optimiser: Optimizer, *, rate: float, peak: float, weight_decay: float | None = None) -> None:
    """`rate` for every group, `peak` for those with a fixed rate; `weight_decay`, if given, for those that decay."""
    for group in optimiser.param_groups:
        group["lr"] = (peak if group["fixed_lr"] else rate) * group.get("rate", 1.0)
        if weight_decay is not None and group.get("decays", False):
            group["weight_decay"] = weight_decay
