"""Options of every training that say how it runs; plain Python, so that configs stay cheap to import."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from viewkit.pipelines.training.ranges import check_at_least


@dataclass(frozen=True, kw_only=True)
class RunningOptions:
    """Precision, memory, and what is looked at on the way. Of these only `precision` is part of the identity."""

    precision: Annotated[Literal["fp32", "bf16", "fp16"], "bf16, fp16: autocast, faster where the processor has it"] = (
        "fp32"
    )
    micro_batch: Annotated[
        int | None, "images that pass the backbone at once, where memory is short; the result is the same (ViTs only)"
    ] = None
    compile: Annotated[bool, "compile the backbone; the first steps take minutes, the others less time"] = False
    knn_epochs: Annotated[int | None, "ask the nearest neighbours every so many epochs (images with labels only)"] = (
        None
    )
    tensorboard: Annotated[bool, "write metrics for TensorBoard too, into tensorboard/"] = False

    UNSEALED: ClassVar[tuple[str, ...]] = ("micro_batch", "compile", "knn_epochs", "tensorboard")
    """Options that do not change the result beyond rounding: no part of the identity."""

    def check_running(self) -> None:
        """`ConfigError` for a value outside its range."""
        check_at_least(1, micro_batch=self.micro_batch, knn_epochs=self.knn_epochs)
