"""Frameworks by name."""

from collections.abc import Callable

from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.frameworks.moco_v3 import MoCoV3
from viewkit.pipelines.pretrain.frameworks.simsiam import SimSiam
from viewkit.pipelines.training.framework import Framework


def _moco_v3(backbone: Backbone, config: PretrainConfig, steps: int) -> Framework:
    s = config.settings
    return MoCoV3(backbone, hidden=s.hidden, dim=s.dim, tau=s.tau, momentum=s.momentum, steps=steps, seed=config.seed)


def _simsiam(backbone: Backbone, config: PretrainConfig, steps: int) -> Framework:
    s = config.settings
    return SimSiam(backbone, hidden=s.hidden, dim=s.dim, seed=config.seed)


FRAMEWORKS: dict[str, Callable[[Backbone, PretrainConfig, int], Framework]] = {
    "moco_v3": _moco_v3,
    "simsiam": _simsiam,
}


def create_framework(backbone: Backbone, config: PretrainConfig, *, steps: int) -> Framework:
    """The config's framework around `backbone`. steps: of the whole training, for schedules of its own."""
    return FRAMEWORKS[config.framework](backbone, config, steps)
