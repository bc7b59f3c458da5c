"""Options that every training has, and the settings that they are resolved to; plain Python, cheap to import."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from viewkit.pipelines.engine.ranges import check_above_zero, check_at_least, check_within
from viewkit.pipelines.models.architectures import Init, kind_of
from viewkit.pipelines.training.schedules import PRECISION_HELP, AnyPrecision, check_duration
from viewkit.shards.errors import ConfigError

OptimiserName = Literal["sgd", "lars", "adamw"]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Precision, memory and monitoring. Of these only `precision` is part of the identity."""

    GROUP: ClassVar[str] = "Precision, memory, monitoring"

    precision: Annotated[AnyPrecision, PRECISION_HELP] = "fp32"
    micro_batch: Annotated[
        int | None, "images in a forward pass, where memory is short; the result is the same (ViTs only)"
    ] = None
    compile: Annotated[bool, "compile the backbone; the first steps take minutes, the others less time"] = False
    knn_epochs: Annotated[int | None, "run the kNN probe every so many epochs (images with labels only)"] = None
    tensorboard: Annotated[bool, "write metrics for TensorBoard too, into tensorboard/"] = False

    NOT_IN_IDENTITY: ClassVar[tuple[str, ...]] = ("micro_batch", "compile", "knn_epochs", "tensorboard")
    """Options that do not change the result beyond rounding: no part of the identity."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(TrainingOptions):
    """What a training is run with: every value known. lr: at 256 images a batch. steps: None for whole epochs.

    fit_warmup, fit_momentum: that option was not given, so it is made to fit a short training (`schedules`).
    """

    arch: str
    init: Init
    num_heads: int | None
    side_px: int
    policy: str
    epochs: int
    steps: int | None
    warmup_epochs: float
    batch_size: int
    lr: float
    weight_decay: float
    seed: int
    fit_warmup: bool = False
    fit_momentum: bool = False

    @property
    def peak_lr(self) -> float:
        """The learning rate after the warm-up, scaled to the batch."""
        return self.lr * self.batch_size / 256

    def check(self) -> None:
        """`ConfigError` for a value outside its range."""
        check_duration(
            epochs=self.epochs,
            steps=self.steps,
            warmup_epochs=self.warmup_epochs,
            batch_size=self.batch_size,
            fit_warmup=self.fit_warmup,
        )
        check_within(1, 65_536, side_px=self.side_px, num_heads=self.num_heads)
        check_above_zero(lr=self.lr)
        check_at_least(0, weight_decay=self.weight_decay)
        check_at_least(1, micro_batch=self.micro_batch, knn_epochs=self.knn_epochs)
        check_within(0, 2**63 - 1, seed=self.seed)
        if kind_of(self.arch) == "resnet" and self.num_heads is not None:
            raise ConfigError(f"num_heads is {self.num_heads} and arch is '{self.arch}', which has none; leave it out")

    def values(self) -> dict[str, Any]:
        """As JSON values for the identity: what changes the result; a policy's file by its name alone, since what it
        says is among the inputs."""
        values = json.loads(json.dumps(asdict(self), allow_nan=False))
        if self.policy.endswith(".toml"):
            values["policy"] = Path(self.policy).name
        return {name: value for name, value in values.items() if name not in self.NOT_IN_IDENTITY}
