"""Fine-tuning: a copy of the whole encoder and a linear classifier on top, trained on labelled views."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from viewkit.pipelines.evaluate.sweep import Batch, cosine
from viewkit.shards.errors import DataError
from viewkit.shards.spans import spanned


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """Learning rates are taken as they are, whatever the batch; they fall along half a cosine, epoch by epoch."""

    optimiser: Literal["sgd", "adamw"]
    lr: float
    head_lr: float
    weight_decay: float


ADAMW = TuneSettings(optimiser="adamw", lr=5e-5, head_lr=1e-3, weight_decay=0.05)
"""Encoder: HVS (Ferreira et al. 2025), tables 10 (ViT-S/16) and 11 (ResNet-50): 5e-5 is the rate of three of five data
sets for the ViT, of one for the ResNet. The classifier's rate is ours."""
PUBLISHED: dict[Literal["vit", "resnet"], TuneSettings] = {
    # The released recipe of Barlow Twins (Zbontar et al. 2021) for 1 %: 20 epochs, batch 256, momentum 0.9.
    "resnet": TuneSettings(optimiser="sgd", lr=0.002, head_lr=0.5, weight_decay=0.0),
    "vit": ADAMW,
}
BY_OPTIMISER: dict[Literal["sgd", "adamw"], TuneSettings] = {"sgd": PUBLISHED["resnet"], "adamw": ADAMW}
"""What an optimiser that is asked for comes with, whatever the backbone."""


@spanned("finetune")
def finetune(
    encoder: nn.Module,
    epochs_of: Callable[[int], Iterator[Batch]],
    first: Float[Tensor, "c d"],
    *,
    settings: TuneSettings,
    epochs: int,
    advance: Callable[[int], None] = lambda count: None,
) -> nn.Module:
    """A network from views to class scores, in evaluation mode; `encoder` itself is left as it is.

    Every weight of the copy is trained, frozen patch projections and position codes too, and batch-norm statistics
    follow the views. epochs_of: batches of views. first: the classifier's weights. Raises `DataError` when the loss is
    not finite.
    """
    head = nn.utils.skip_init(nn.Linear, first.shape[1], first.shape[0], device=first.device)
    with torch.no_grad():
        head.weight.copy_(first)
        head.bias.zero_()
    network = nn.Sequential(copy.deepcopy(encoder), head).train().requires_grad_(True)
    optimiser = create(network[0], head, settings)
    for epoch in range(epochs):
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * cosine(epoch, epochs)
        loss = torch.zeros((), device=first.device)
        for views, labels, _ in epochs_of(epoch):
            loss = F.cross_entropy(network(views), labels)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        if not loss.isfinite():
            raise DataError(
                f"evaluate: fine-tuning has diverged in epoch {epoch + 1} (loss {float(loss.detach())}) at learning "
                f"rates {settings.lr:g} and {settings.head_lr:g}; lower --tune-lr or --tune-head-lr"
            )
        advance(1)
    return network.eval().requires_grad_(False)


def create(encoder: nn.Module, head: nn.Module, settings: TuneSettings) -> Optimizer:
    """The optimiser; `peak` of a group is its learning rate in the first epoch."""
    groups = [
        {"params": list(encoder.parameters()), "peak": settings.lr},
        {"params": list(head.parameters()), "peak": settings.head_lr},
    ]
    if settings.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=0.9, weight_decay=settings.weight_decay)
    return torch.optim.AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay)
