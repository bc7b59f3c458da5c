"""Options of `viewkit estimator`."""

import re
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, ClassVar, Literal

from viewkit.pipelines.engine.config import Group
from viewkit.pipelines.engine.ranges import check_above_zero, check_within
from viewkit.pipelines.models.architectures import Init
from viewkit.pipelines.training.options import TrainingOptions, TrainingSettings
from viewkit.shards.errors import ConfigError

TRUNK = re.compile(r"(timm:|runs/)[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""How a frozen trunk is named."""

PairKind = Literal["random", "overlap"]
PresetName = Literal["pico-32", "tiny-64", "small-96", "vit-s16-224"]
PresetChoice = Literal["auto", "pico-32", "tiny-64", "small-96", "vit-s16-224"]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What a preset decides, and what `EstimatorConfig` may override one by one."""

    arch: str
    side_px: int
    policy: str
    epochs: int
    warmup_epochs: float
    batch_size: int
    lr: float
    weight_decay: float
    tau: float
    momentum: float
    hidden: int
    dim: int


PRESETS: dict[PresetName, Preset] = {
    # Small sets on a CPU: minutes for a few thousand images.
    "pico-32": Preset(
        arch="vit_pico_patch8", side_px=32, policy="moco_v3_vit", epochs=30, warmup_epochs=3.0, batch_size=128, lr=2e-3,
        weight_decay=0.1, tau=0.2, momentum=0.99, hidden=512, dim=128,
    ),
    "tiny-64": Preset(
        arch="vit_tiny_patch8", side_px=64, policy="moco_v3_vit", epochs=100, warmup_epochs=10.0, batch_size=256,
        lr=1e-3, weight_decay=0.1, tau=0.2, momentum=0.99, hidden=1024, dim=128,
    ),
    "small-96": Preset(
        arch="vit_small_patch8", side_px=96, policy="moco_v3_vit", epochs=200, warmup_epochs=20.0, batch_size=512,
        lr=5e-4, weight_decay=0.1, tau=0.2, momentum=0.99, hidden=2048, dim=256,
    ),
    # The paper's: MoCo v3's own numbers for ViT-S/16 (Chen et al. 2021; batch 4096 there, by accumulation in VS-2FI).
    "vit-s16-224": Preset(
        arch="vit_small_patch16_224", side_px=224, policy="moco_v3_vit", epochs=300, warmup_epochs=40.0,
        batch_size=1024, lr=1.5e-4, weight_decay=0.1, tau=0.2, momentum=0.99, hidden=4096, dim=256,
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EstimatorConfig(TrainingOptions):
    """Train the estimator: MoCo v3 with an early exit on every block (VS-2FI, eq. 1 and 4)."""

    GROUP: ClassVar[str] = "Training"
    MAIN: ClassVar[tuple[str, ...]] = ("preset", "arch", "side_px", "policy", "epochs", "batch_size", "lr")

    preset: Annotated[
        PresetChoice,
        "values of every option below that is not given; auto: chosen for the number and side of the images and the "
        "machine, and said",
    ] = "auto"
    arch: Annotated[str | None, "a ViT or ResNet of timm, or one of viewkit's small ones"] = None
    init: Annotated[
        Init,
        "initialisation of a ViT: MoCo v3's weights with fixed sine-cosine positions and a frozen patch projection, or "
        "timm's",
    ] = "moco_v3"
    num_heads: Annotated[int | None, "attention heads of a ViT, in place of the architecture's own number"] = None
    side_px: Annotated[int | None, "side of the views"] = None
    policy: Annotated[str | None, "augmentations: a policy's name, or a TOML file"] = None
    epochs: Annotated[int | None, "passes over the images"] = None
    steps: Annotated[int | None, "steps in all, instead of epochs"] = None
    warmup_epochs: Annotated[
        float | None, "epochs in which the learning rate rises; not given, at most 15 % of the training"
    ] = None
    batch_size: Annotated[int | None, "images in a batch; the others of it are the negatives"] = None
    lr: Annotated[float | None, "learning rate at 256 images a batch; scaled with the batch"] = None
    weight_decay: Annotated[float | None, "AdamW's, of all weights of a ViT as in MoCo v3"] = None
    tau: Annotated[float | None, "temperature of every InfoNCE"] = None
    pairs: Annotated[
        PairKind,
        "random pairs; or, of five views of an image, any two whose crops share area (overlap): for images of several "
        "objects, where many random pairs are false positives",
    ] = "random"
    momentum: Annotated[
        float | None, "first momentum of the momentum encoder; rises to 1; not given, lower in a short training"
    ] = None
    hidden: Annotated[int | None, "hidden width of projector and predictor"] = None
    dim: Annotated[int | None, "width of the embeddings, of the top and of every exit"] = None
    trunk: Annotated[
        str | None,
        "a trained trunk that is kept frozen, under a projector and exits that are trained in minutes: timm:NAME with "
        "--trunk-weights FILE, or runs/NAME of this dataset (default: the trunk is trained on the images)",
        Group("Frozen trunk"),
    ] = None
    trunk_images: Annotated[
        int, "trunk: images at most whose views are encoded once and kept", Group("Frozen trunk")
    ] = 8192
    trunk_views: Annotated[
        int, "trunk: views of each of them; every step takes two, one of each specification", Group("Frozen trunk")
    ] = 8
    seed: Annotated[int, "seed of all random numbers"] = 0

    def __post_init__(self) -> None:
        # An impossible config is refused at once; where the preset is open, any one serves to check the other options.
        if self.preset != "auto":
            resolve(self)
        else:
            resolve(replace(self, preset="pico-32"))


@dataclass(frozen=True, kw_only=True)
class EstimatorSettings(Preset, TrainingSettings):
    """What the estimator is trained with: every value known, but arch, init, num_heads and side of a run's trunk."""

    preset: str
    pairs: PairKind
    trunk: str | None
    trunk_images: int
    trunk_views: int

    def check(self) -> None:
        super().check()
        check_within(1, 65_536, hidden=self.hidden, dim=self.dim)
        check_above_zero(tau=self.tau)
        check_within(0, 1, momentum=self.momentum)
        check_within(2, 10**7, trunk_images=self.trunk_images)
        check_within(2, 1000, trunk_views=self.trunk_views)
        if self.pairs != "random" and self.trunk is not None:
            raise ConfigError(
                f"pairs is '{self.pairs}' and trunk is '{self.trunk}', whose views are random; leave one out"
            )
        if self.trunk is not None and TRUNK.fullmatch(self.trunk) is None:
            raise ConfigError(
                f"trunk is '{self.trunk}'; it must be timm:NAME or runs/NAME, e.g. timm:vit_small_patch16_224"
            )


def resolve(config: EstimatorConfig) -> EstimatorSettings:
    """Every value of the training, given or the preset's; a pure function. `ConfigError` for what cannot be."""
    if config.preset not in PRESETS:
        raise ConfigError(
            f"preset is '{config.preset}'; it must be one of {', '.join(PRESETS)}"
            + (", which the images decide: see viewkit.pipelines.estimator.choose" if config.preset == "auto" else "")
        )
    given = {field.name for field in fields(config)}
    values = {field.name: getattr(config, field.name) for field in fields(EstimatorSettings) if field.name in given}
    values |= {"fit_warmup": config.warmup_epochs is None, "fit_momentum": config.momentum is None}
    preset = asdict(PRESETS[config.preset])
    if config.trunk is not None and (config.arch is not None or config.num_heads is not None):
        raise ConfigError(f"trunk is '{config.trunk}', which decides arch and num_heads; leave them out")
    settings = EstimatorSettings(**{**values, **{name: preset[name] for name in preset if values[name] is None}})
    settings.check()
    return settings
