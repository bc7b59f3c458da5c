"""Options of `viewkit pretrain`."""

from dataclasses import dataclass
from typing import Annotated

from viewkit.pipelines.pretrain.settings import (
    COMMON,
    SETTINGS,
    FrameworkOptions,
    OptimiserName,
    Settings,
    StartName,
    kind_of,
    resolve,
)
from viewkit.pipelines.pretrain.view_options import ViewOptions
from viewkit.pipelines.training.duration import check_duration
from viewkit.pipelines.training.ranges import check_above_zero, check_at_least, check_within
from viewkit.pipelines.training.running import RunningOptions
from viewkit.shards.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(ViewOptions, FrameworkOptions, RunningOptions):
    """Train an encoder on pairs of views: any framework, any selection of pairs, with or without generated views."""

    arch: Annotated[str, "a ViT or ResNet of timm, or one of viewkit's small ones"] = "resnet18_cifar"
    start: Annotated[
        StartName | None,
        "how a ViT begins: fixed sine-cosine positions, frozen patches and weights as in MoCo v3, or as timm makes it "
        "(default: the framework's)",
    ] = None
    num_heads: Annotated[int | None, "attention heads of a ViT, where the architecture's own number is not wanted"] = (
        None
    )
    side_px: Annotated[int, "side of the views"] = 32
    policy: Annotated[str | None, "augmentations: a policy's name, or a TOML file (default: the framework's)"] = None
    epochs: Annotated[int, "passes over the images"] = 200
    steps: Annotated[int | None, "steps in all, instead of epochs"] = None
    warmup_epochs: Annotated[float, "epochs in which the learning rate rises"] = 10.0
    batch_size: Annotated[int, "images in a batch"] = 256
    optimiser: Annotated[OptimiserName | None, "optimiser (default: the framework's)"] = None
    lr: Annotated[
        float | None, "learning rate at 256 images a batch, scaled with the batch (default: the framework's)"
    ] = None
    weight_decay: Annotated[float | None, "of weights; see --decay-all (default: the framework's)"] = None
    weight_decay_end: Annotated[
        float | None, "where the weight decay goes along a cosine (default: the framework's, or where it began)"
    ] = None
    decay_all: Annotated[
        bool | None, "biases, norms and class tokens decay too, as in some released code (default: the framework's)"
    ] = None
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        kind = kind_of(self.arch)
        if (self.framework, kind) not in SETTINGS:
            names = ", ".join(sorted({name for name, _ in SETTINGS}))
            raise ConfigError(f"framework is '{self.framework}'; it must be one of {names}")
        if kind == "resnet" and self.num_heads is not None:
            raise ConfigError(f"num_heads is {self.num_heads} and arch is '{self.arch}', which has none; leave it out")
        defaults = SETTINGS[self.framework, kind]
        common = {name: getattr(defaults, name) for name in COMMON if getattr(self, name) is None}
        for name, value in {**common, **resolve(self, kind)}.items():
            object.__setattr__(self, name, value)  # the identity holds what was used, not "the framework's"
        s = self.settings
        check_duration(
            epochs=self.epochs, steps=self.steps, warmup_epochs=self.warmup_epochs, batch_size=self.batch_size
        )
        self.check_framework()
        self.check_views(self.framework, s.own, self.side_px)
        self.check_batch(self.batch_size)
        check_within(1, 65_536, side_px=self.side_px, num_heads=self.num_heads)
        check_above_zero(lr=s.lr)
        check_at_least(0, weight_decay=s.weight_decay, weight_decay_end=s.weight_decay_end)
        self.check_running()
        check_within(0, 2**63 - 1, seed=self.seed)

    @property
    def settings(self) -> Settings:
        """The resolved values."""
        kind = kind_of(self.arch)
        common = {name: getattr(self, name) for name in COMMON}
        return Settings(**common, own=resolve(self, kind))
