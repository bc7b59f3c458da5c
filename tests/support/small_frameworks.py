"""Every framework small enough for a test, and views to train it on."""

from typing import Any

import torch

from viewkit.pipelines.frameworks.table import create_framework
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.training.optimisers import create_optimiser, set_rates
from viewkit.pipelines.training.step import Stepper

QUEUE = {"dim": 16, "queue_length": 32}
OPTIONS: dict[str, dict[str, Any]] = {
    "simclr": {"hidden": 32, "dim": 16},
    "moco_v1": QUEUE,
    "moco_v2": {"hidden": 32, **QUEUE},
    "moco_v3": {"hidden": 32, "dim": 16},
    "byol": {"hidden": 32, "dim": 16},
    "simsiam": {"hidden": 32, "dim": 16},
    "swav": {"hidden": 32, "dim": 16, "prototypes": 12, "prototype_freeze_steps": 2},
    "dino": {"hidden": 32, "bottleneck": 16, "dim": 24, "last_freeze_epochs": 2.0},
    "vicreg": {"hidden": 32, "dim": 16},
    "barlow_twins": {"hidden": 32, "dim": 16},
}
MULTI_CROP = ("swav", "dino")


def small_config(name: str, **options: Any) -> PretrainConfig:
    """Batches of 8; an epoch counts as one step where options are in epochs."""
    defaults = {"arch": "resnet10_narrow", "batch_size": 8, "seed": 1, "epochs": 20, "warmup_epochs": 0.0}
    if name.startswith(("moco_v1", "moco_v2")) and not options.get("arch", "resnet").startswith("vit"):
        defaults["bn_splits"] = 2
    return PretrainConfig(framework=name, **{**defaults, **OPTIONS[name], **options})


def small_framework(name: str, **options: Any):
    config = small_config(name, **options)
    return create_framework(
        create_backbone(config.arch, 32, seed=1), resolve(config), steps=20, steps_per_epoch=1
    ).train()


def batch(name: str, step: int = 0, num_rows: int = 8) -> list[torch.Tensor]:
    """Two views of 16 px that share what they show, and two of 8 px for methods of several crops."""
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(num_rows, 3, 16, 16, generator=generator)
    views = [images + 0.3 * torch.randn(images.shape, generator=generator) for _ in range(2)]
    if name in MULTI_CROP:
        views += [images[:, :, 8 * i : 8 * i + 8, :8].clone() for i in range(2)]
    return views


def train(framework, optimiser, batches, micro_batch=None, rate=0.05) -> list[float]:
    """Losses of one step on each of `batches`."""
    stepper, losses = Stepper.make("cpu", micro_batch=micro_batch), []
    for views in batches:
        set_rates(optimiser, rate=rate, peak=rate)
        losses.append(float(stepper(framework, optimiser, views, None)))
    return losses


def small_training(name: str, optimiser: str = "sgd", **options: Any):
    framework = small_framework(name, **options)
    return framework, create_optimiser(optimiser, framework.groups(1e-4))
