"""What a framework says about itself without torch: its name, options, defaults, traits, and how it is built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from viewkit.pipelines.models.architectures import Init, Kind
from viewkit.pipelines.training.choices import Defaults, own_values
from viewkit.pipelines.training.options import OptimiserName
from viewkit.pipelines.training.schedules import LrSchedule, fitted_momentum
from viewkit.pipelines.training.traits import Traits
from viewkit.shards.errors import ConfigError

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a framework is trained on one kind of backbone, where nothing else is asked for.

    lr: at 256 images a batch. lr_end: where its cosine ends, whatever the batch; None: at `lr_end_share` of its peak.
    warmup_epochs: of trainings long enough for it. drop_path: stochastic depth of the backbone. weight_decay_end: where
    the weight decay moves to along a cosine, or None. decay_all: whether biases, norms and class tokens decay too, as
    they do where the released code hands its optimiser all weights alike. init: initialisation of a ViT. options: in
    addition to the card's, or in place of them.
    """

    policy: str
    optimiser: OptimiserName
    lr: float
    weight_decay: float
    warmup_epochs: float = 10.0
    lr_schedule: LrSchedule = "cosine"
    lr_end: float | None = None
    lr_end_share: float = 0.0
    drop_path: float = 0.0
    weight_decay_end: float | None = None
    decay_all: bool = False
    init: Init = "moco_v3"
    options: Defaults = field(default_factory=dict)

    def end_of(self, peak: float, lr_schedule: LrSchedule) -> float:
        """Learning rate at the end of a cosine from `peak`, never above it; 0 where the rate falls in steps."""
        if lr_schedule == "steps":
            return 0.0
        return self.lr_end_share * peak if self.lr_end is None else min(self.lr_end, peak)


def moco_v3_recipe(policy: str, options: Defaults | None = None) -> Recipe:
    """MoCo v3's for a ViT, which a framework takes whose paper has ResNets only."""
    return Recipe(
        policy=policy,
        optimiser="adamw",
        lr=1.5e-4,
        weight_decay=0.1,
        warmup_epochs=40.0,
        decay_all=True,
        options=options or {},
    )


FROZEN_AT_FIRST = ("prototype_freeze_steps", "last_freeze_steps")
"""Durations for which a last layer gets no gradient."""


def no_check(own: Mapping[str, Any], batch_size: int) -> None:
    """Nothing to check."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A framework. build: makes it of a backbone, `seed` and its own options by name, durations in steps; only then is
    torch imported. options: what it takes on both kinds of backbones, with defaults. check: `ConfigError` where the
    values of its options do not fit each other or the batch size.
    """

    name: str
    build: Callable[..., "Framework"]
    options: Defaults
    resnet: Recipe
    vit: Recipe
    traits: Traits = field(default_factory=Traits)
    check: Callable[[Mapping[str, Any], int], None] = no_check

    def recipe(self, kind: Kind) -> Recipe:
        return self.vit if kind == "vit" else self.resnet

    def options_on(self, kind: Kind) -> Defaults:
        """Its options on this kind of backbone, with defaults."""
        return {**self.options, **self.recipe(kind).options}

    def resolve(self, given: Mapping[str, Any], kind: Kind, batch_size: int) -> dict[str, Any]:
        """Values of its options. given: options of all frameworks by name, None where not given.

        `ConfigError` for an option that it does not have, or a value that does not fit.
        """
        defaults = self.options_on(kind)
        names = {option.name for option in defaults}
        for name, value in given.items():
            if value is not None and name not in names:
                has = ", ".join(sorted(names))
                raise ConfigError(f"{name} is {value}: {self.name} on a {kind} has no such option; it has {has}")
        own = own_values(defaults, given)
        self.check(own, batch_size)
        return own

    def fitted(self, own: Mapping[str, Any], steps: int) -> dict[str, Any]:
        """The options with a momentum that fits a training of `steps` steps (`schedules.fitted_momentum`)."""
        if "momentum" not in own:
            return dict(own)
        rising = self.traits.rising_momentum
        return {**own, "momentum": fitted_momentum(steps=steps, start=own["momentum"], rising=rising)}

    def create(
        self,
        backbone: "Backbone",
        own: Mapping[str, Any],
        *,
        seed: int,
        steps: int,
        steps_per_epoch: float,
        fit_momentum: bool = False,
    ) -> "Framework":
        """The framework around `backbone`. steps: of the whole training. fit_momentum: see `fitted`.

        Options in epochs (``NAME_epochs``) reach `build` in steps (``NAME_steps``).
        """
        options = self.fitted(own, steps) if fit_momentum else dict(own)
        for name in [name for name in options if name.endswith("_epochs")]:
            options[name.removesuffix("_epochs") + "_steps"] = round(options.pop(name) * steps_per_epoch)
        for name in FROZEN_AT_FIRST:
            if 0 < steps <= options.get(name, 0):
                raise ConfigError(
                    f"{name.removesuffix('_steps')} lasts {options[name]} steps and the training has {steps}: what it "
                    f"freezes would never learn; train longer, or give {self.name} less of it"
                )
        if self.traits.rising_momentum:
            options["steps"] = steps
        return self.build(backbone, seed=seed, **options)
