"""Options of `viewkit pretrain`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from viewkit.pipelines.training.duration import check_duration
from viewkit.pipelines.training.ranges import check_above_zero, check_at_least, check_within
from viewkit.shards.errors import ConfigError

FrameworkName = Literal["moco_v3", "simsiam"]
OptimiserName = Literal["sgd", "adamw"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What framework and kind of backbone decide, and what `PretrainConfig` may override one by one.

    hidden: hidden width of MoCo v3's heads, and of SimSiam's predictor.
    """

    policy: str
    optimiser: OptimiserName
    lr: float
    weight_decay: float
    tau: float
    momentum: float
    hidden: int
    dim: int


SETTINGS: dict[tuple[FrameworkName, Literal["vit", "resnet"]], Settings] = {
    # Chen et al. 2021: ViT with AdamW. For ResNets the paper has LARS; SGD at its own rate serves small batches.
    ("moco_v3", "vit"): Settings(
        policy="moco_v3_vit", optimiser="adamw", lr=1.5e-4, weight_decay=0.1, tau=0.2, momentum=0.99, hidden=4096,
        dim=256,
    ),
    ("moco_v3", "resnet"): Settings(
        policy="moco_v3", optimiser="sgd", lr=0.06, weight_decay=1e-4, tau=0.2, momentum=0.99, hidden=4096, dim=256
    ),
    # Chen & He 2021, sec. 3, which has ResNets only; a ViT gets MoCo v3's optimiser.
    ("simsiam", "vit"): Settings(
        policy="simsiam", optimiser="adamw", lr=1.5e-4, weight_decay=0.1, tau=0.2, momentum=0.99, hidden=512, dim=2048
    ),
    ("simsiam", "resnet"): Settings(
        policy="simsiam", optimiser="sgd", lr=0.05, weight_decay=1e-4, tau=0.2, momentum=0.99, hidden=512, dim=2048
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Train an encoder on pairs of views: any framework, any selection of pairs, with or without generated views."""

    framework: Annotated[FrameworkName, "self-supervised method"] = "moco_v3"
    arch: Annotated[str, "a ViT or ResNet of timm, or one of viewkit's small ones"] = "resnet18_cifar"
    start: Annotated[
        Literal["moco_v3", "timm"],
        "how a ViT begins: fixed sine-cosine positions, frozen patches and weights as in MoCo v3, or as timm makes it",
    ] = "moco_v3"
    num_heads: Annotated[int | None, "attention heads of a ViT, where the architecture's own number is not wanted"] = (
        None
    )
    side_px: Annotated[int, "side of the views"] = 32
    select: Annotated[Literal["random", "vs2fi"], "pairs: drawn afresh, or chosen from those that 'score' rated"] = (
        "random"
    )
    pairs: Annotated[str, "vs2fi: column of the scored pairs; 'rescore' writes another one"] = "pairs"
    k_sc: Annotated[float, "vs2fi: least Semantic Consistency of a pair"] = 0.99
    k_al: Annotated[
        float | None, "vs2fi: least Alignment Level of a pair (default: 7/12 of the estimator's blocks)"
    ] = None
    alpha: Annotated[float, "probability that one of the two views is cut from the generated image"] = 0.0
    policy: Annotated[str | None, "augmentations: a policy's name, or a TOML file (default: the framework's)"] = None
    epochs: Annotated[int, "passes over the images"] = 200
    steps: Annotated[int | None, "steps in all, instead of epochs"] = None
    warmup_epochs: Annotated[float, "epochs in which the learning rate rises"] = 10.0
    batch_size: Annotated[int, "images in a batch"] = 256
    optimiser: Annotated[OptimiserName | None, "default: adamw for ViTs, sgd for ResNets"] = None
    lr: Annotated[
        float | None, "learning rate at 256 images a batch, scaled with the batch (default: the framework's)"
    ] = None
    weight_decay: Annotated[float | None, "biases, norms and class tokens are left out (default: the framework's)"] = (
        None
    )
    tau: Annotated[float | None, "temperature, where the framework has one (default: the framework's)"] = None
    momentum: Annotated[float | None, "first momentum of a momentum encoder; rises to 1 (default: the framework's)"] = (
        None
    )
    hidden: Annotated[int | None, "hidden width of the heads (default: the framework's)"] = None
    dim: Annotated[int | None, "width of the outputs (default: the framework's)"] = None
    precision: Annotated[Literal["fp32", "bf16"], "bf16: autocast, faster where the processor has it"] = "fp32"
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        kind: Literal["vit", "resnet"] = "vit" if self.arch.startswith("vit") else "resnet"
        if (self.framework, kind) not in SETTINGS:
            names = ", ".join(sorted({name for name, _ in SETTINGS}))
            raise ConfigError(f"framework is '{self.framework}'; it must be one of {names}")
        defaults = SETTINGS[self.framework, kind]
        for name in Settings.__dataclass_fields__:
            if getattr(self, name) is None:  # the identity holds what was used, not "the framework's"
                object.__setattr__(self, name, getattr(defaults, name))
        s = self.settings
        check_duration(
            epochs=self.epochs, steps=self.steps, warmup_epochs=self.warmup_epochs, batch_size=self.batch_size
        )
        check_within(1, 65_536, side_px=self.side_px, hidden=s.hidden, dim=s.dim, num_heads=self.num_heads)
        check_above_zero(lr=s.lr, tau=s.tau)
        check_at_least(0, weight_decay=s.weight_decay)
        check_at_least(1, k_al=self.k_al)
        check_within(0, 1, alpha=self.alpha, momentum=s.momentum, k_sc=self.k_sc)
        check_within(0, 2**63 - 1, seed=self.seed)

    @property
    def settings(self) -> Settings:
        """The resolved values."""
        return Settings(**{name: getattr(self, name) for name in Settings.__dataclass_fields__})
