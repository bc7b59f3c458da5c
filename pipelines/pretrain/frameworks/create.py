"""Frameworks by name."""

from collections.abc import Callable

from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.frameworks.barlow_twins import BarlowTwins
from viewkit.pipelines.pretrain.frameworks.byol import BYOL
from viewkit.pipelines.pretrain.frameworks.dino import DINO
from viewkit.pipelines.pretrain.frameworks.moco import moco_v1, moco_v2
from viewkit.pipelines.pretrain.frameworks.moco_v3 import MoCoV3
from viewkit.pipelines.pretrain.frameworks.simclr import SimCLR
from viewkit.pipelines.pretrain.frameworks.simsiam import SimSiam
from viewkit.pipelines.pretrain.frameworks.swav import SwAV
from viewkit.pipelines.pretrain.frameworks.vicreg import VICReg
from viewkit.pipelines.training.framework import Framework

FRAMEWORKS: dict[str, Callable[..., Framework]] = {
    "simclr": SimCLR,
    "moco_v1": moco_v1,
    "moco_v2": moco_v2,
    "moco_v3": MoCoV3,
    "byol": BYOL,
    "simsiam": SimSiam,
    "swav": SwAV,
    "dino": DINO,
    "vicreg": VICReg,
    "barlow_twins": BarlowTwins,
}
"""Each takes the backbone, `seed` and its own options (`pretrain.settings.SETTINGS`) by name, durations in steps."""
RISING = ("moco_v3", "byol", "dino")
"""Those whose momentum rises over the training, and which therefore take `steps`, too."""


def create_framework(
    backbone: Backbone, config: PretrainConfig, *, steps: int, steps_per_epoch: int | None = None
) -> Framework:
    """The config's framework around `backbone`.

    steps: of the whole training; steps_per_epoch: what options in epochs are measured by, steps / epochs by default.
    """
    epoch = steps / config.epochs if steps_per_epoch is None else steps_per_epoch
    options = dict(config.settings.own)
    for name in [name for name in options if name.endswith("_epochs")]:
        options[name.removesuffix("_epochs") + "_steps"] = round(options.pop(name) * epoch)
    if config.framework in RISING:
        options["steps"] = steps
    return FRAMEWORKS[config.framework](backbone, seed=config.seed, **options)
