"""Options of `viewkit estimator`."""

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from viewkit.pipelines.training.duration import check_duration
from viewkit.pipelines.training.ranges import check_above_zero, check_at_least, check_within
from viewkit.pipelines.training.running import RunningOptions
from viewkit.shards.errors import ConfigError

PresetName = Literal["pico-32", "tiny-64", "small-96", "vit-s16-224"]


@dataclass(frozen=True, kw_only=True)
class Settings:
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


PRESETS: dict[PresetName, Settings] = {
    # Small sets on a CPU: minutes for a few thousand images.
    "pico-32": Settings(
        arch="vit_pico_patch8", side_px=32, policy="moco_v3_vit", epochs=30, warmup_epochs=3.0, batch_size=128, lr=2e-3,
        weight_decay=0.1, tau=0.2, momentum=0.99, hidden=512, dim=128,
    ),
    "tiny-64": Settings(
        arch="vit_tiny_patch8", side_px=64, policy="moco_v3_vit", epochs=100, warmup_epochs=10.0, batch_size=256,
        lr=1e-3, weight_decay=0.1, tau=0.2, momentum=0.99, hidden=1024, dim=128,
    ),
    "small-96": Settings(
        arch="vit_small_patch8", side_px=96, policy="moco_v3_vit", epochs=200, warmup_epochs=20.0, batch_size=512,
        lr=5e-4, weight_decay=0.1, tau=0.2, momentum=0.99, hidden=2048, dim=256,
    ),
    # The paper's: MoCo v3's own numbers for ViT-S/16 (Chen et al. 2021; batch 4096 there, by accumulation in VS-2FI).
    "vit-s16-224": Settings(
        arch="vit_small_patch16_224", side_px=224, policy="moco_v3_vit", epochs=300, warmup_epochs=40.0,
        batch_size=1024, lr=1.5e-4, weight_decay=0.1, tau=0.2, momentum=0.99, hidden=4096, dim=256,
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EstimatorConfig(RunningOptions):
    """Train the estimator: MoCo v3 with an early exit on every block (VS-2FI, eq. 1 and 4)."""

    preset: Annotated[PresetName, "values of every option below that is not given"] = "tiny-64"
    arch: Annotated[str | None, "a ViT or ResNet of timm, or one of viewkit's small ones"] = None
    start: Annotated[
        Literal["moco_v3", "timm"],
        "how a ViT begins: fixed sine-cosine positions, frozen patches and weights as in MoCo v3, or as timm makes it",
    ] = "moco_v3"
    num_heads: Annotated[int | None, "attention heads of a ViT, where the architecture's own number is not wanted"] = (
        None
    )
    side_px: Annotated[int | None, "side of the views"] = None
    policy: Annotated[str | None, "augmentations: a policy's name, or a TOML file"] = None
    epochs: Annotated[int | None, "passes over the images"] = None
    steps: Annotated[int | None, "steps in all, instead of epochs"] = None
    warmup_epochs: Annotated[float | None, "epochs in which the learning rate rises"] = None
    batch_size: Annotated[int | None, "images in a batch; the others of it are the negatives"] = None
    lr: Annotated[float | None, "learning rate at 256 images a batch; scaled with the batch"] = None
    weight_decay: Annotated[float | None, "AdamW's; biases, norms and class tokens are left out"] = None
    tau: Annotated[float | None, "temperature of every InfoNCE"] = None
    momentum: Annotated[float | None, "first momentum of the momentum encoder; rises to 1"] = None
    hidden: Annotated[int | None, "hidden width of projector and predictor"] = None
    dim: Annotated[int | None, "width of the embeddings, of the top and of every exit"] = None
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ConfigError(f"preset is '{self.preset}'; it must be one of {', '.join(PRESETS)}")
        for name, value in asdict(PRESETS[self.preset]).items():
            if getattr(self, name) is None:  # the identity holds what was used, not "the preset's"
                object.__setattr__(self, name, value)
        s = self.settings
        check_duration(epochs=s.epochs, steps=self.steps, warmup_epochs=s.warmup_epochs, batch_size=s.batch_size)
        check_within(1, 65_536, side_px=s.side_px, hidden=s.hidden, dim=s.dim, num_heads=self.num_heads)
        check_above_zero(lr=s.lr, tau=s.tau)
        check_at_least(0, weight_decay=s.weight_decay)
        self.check_running()
        check_within(0, 1, momentum=s.momentum)
        check_within(0, 2**63 - 1, seed=self.seed)

    @property
    def settings(self) -> Settings:
        """The resolved values."""
        return Settings(**{name: getattr(self, name) for name in Settings.__dataclass_fields__})
