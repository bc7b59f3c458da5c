"""Alarms that stop a training which can only waste time."""

import math
from collections.abc import Mapping
from pathlib import Path

from viewkit.shards.errors import DataError

COLLAPSED = 0.02
"""Spread of outputs (1 = evenly on the sphere) below which they count as all the same."""
PATIENCE = 3
"""Lines of metrics in a row, after the warm-up, with a collapsed spread that stop the training."""


class Watch:
    """Stops a training that can only waste time."""

    def __init__(self, stage: str, folder: Path, *, warmup_steps: int, precision: str) -> None:
        self.stage, self.warmup_steps, self.precision = stage, warmup_steps, precision
        self.start_over = f"delete {folder} first, it belongs to the old settings"
        self.low = 0

    def check(self, line: Mapping[str, float | int]) -> None:
        """Raises `DataError` with advice when the loss is not finite or the outputs have collapsed."""
        where = f"{self.stage}: step {line['step']}"
        rate = f"the learning rate is {line['lr']:.3g}"
        if not math.isfinite(line["loss"]):
            precision = ", train with --precision fp32" if self.precision != "fp32" else ""
            raise DataError(
                f"{where}: the loss is {line['loss']} and {rate}; lower --lr or lengthen --warmup-epochs{precision}; "
                f"{self.start_over}"
            )
        collapsed = line["step"] > self.warmup_steps and line["spread"] < COLLAPSED
        self.low = self.low + 1 if collapsed else 0
        if self.low >= PATIENCE:
            raise DataError(
                f"{where}: the outputs have collapsed, all images look the same to the network (spread "
                f"{line['spread']:.2g} of 1 {PATIENCE} lines of metrics in a row) and {rate}; lower --lr, lengthen "
                f"--warmup-epochs or raise --batch-size; {self.start_over}"
            )
