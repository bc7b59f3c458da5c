"""Metrics for those who watch a training in TensorBoard; metrics.jsonl holds the same numbers."""

from collections.abc import Mapping
from pathlib import Path

from viewkit.pipelines.training.metrics import Number
from viewkit.shards.errors import ConfigError

FOLDER = "tensorboard"


class TensorBoard:
    """Event files in ``FOLDER`` of the run. `ConfigError` when the library is not installed."""

    def __init__(self, folder: Path, resume_at: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "--tensorboard needs the package tensorboard, which is not installed; "
                "run: pip install 'viewkit[tracking]'"
            ) from error
        self.writer = SummaryWriter(folder / FOLDER, purge_step=resume_at + 1 if resume_at else None)

    def append(self, line: Mapping[str, Number]) -> None:
        """One point a number, at the line's step."""
        step = int(line["step"] or 0)
        for name, value in line.items():
            if name != "step" and value is not None:
                self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
