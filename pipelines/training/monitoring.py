"""What is observed while a training runs, without any effect on it: metrics, rank of the features, probes, alarms."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.training.metrics import Number, read_metrics
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import explained, open_own, write_atomic

LOG_EVERY = 10
"""Steps between two lines of metrics; checkpoints are written at such steps only."""
TENSORBOARD = "tensorboard"
ROWS = 512
"""Rows of which the rank is computed, at most: the cost grows with their cube."""
COLLAPSED = 0.02
"""Spread of outputs (1 = evenly on the sphere) below which they count as all the same."""
PATIENCE = 3
"""Consecutive lines of metrics, after the warm-up, with a collapsed spread that stop the training."""

Probe = Callable[[Any], Mapping[str, float]]
"""Measures what is trained on the way, e.g. by nearest neighbours; gives numbers for metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Monitoring:
    """What is observed, and how often.

    probe: called after every `probe_steps` steps, by the main process. checkpoint_s: least seconds between two
    checkpoints.
    """

    probe: Probe | None = None
    probe_steps: int | None = None
    tensorboard: bool = False
    checkpoint_s: float | None = None

    def next_line(self, step: int, last: int) -> int:
        """The step after which the next line of metrics is written: the same ones after a resume."""
        grids = [LOG_EVERY] if self.probe_steps is None else [LOG_EVERY, self.probe_steps]
        return min(last, *((step // grid + 1) * grid for grid in grids))

    def probes_at(self, step: int) -> bool:
        return self.probe is not None and self.probe_steps is not None and step % self.probe_steps == 0


class Alarms:
    """Stops a training that can only waste time."""

    def __init__(self, stage: str, folder: Path, *, warmup_steps: int, precision: str, slower: str) -> None:
        self.stage, self.warmup_steps, self.precision, self.slower = stage, warmup_steps, precision, slower
        self.start_over = f"delete {folder} first, it belongs to the old settings"
        self.low = 0

    def check(self, line: Mapping[str, float | int]) -> None:
        """Raises `DataError` with advice when the loss is not finite or the outputs have collapsed."""
        where = f"{self.stage}: step {line['step']}"
        rate = f"the learning rate is {line['lr']:.3g}"
        if not math.isfinite(line["loss"]):
            precision = ", train with --precision fp32" if self.precision != "fp32" else ""
            raise DataError(
                f"{where}: the loss is {line['loss']} and {rate}; {self.slower}{precision}; {self.start_over}"
            )
        collapsed = line["step"] > self.warmup_steps and line.get("spread", 1.0) < COLLAPSED
        self.low = self.low + 1 if collapsed else 0
        if self.low >= PATIENCE:
            raise DataError(
                f"{where}: the outputs have collapsed, all images look the same to the network (spread "
                f"{line['spread']:.2g} of 1 {PATIENCE} lines of metrics in a row) and {rate}; lower --lr, lengthen "
                f"--warmup-epochs or raise --batch-size; {self.start_over}"
            )


class MetricsLog:
    """Appends lines to metrics.jsonl. A resumed run first drops what lies beyond its checkpoint."""

    def __init__(self, path: Path, resume_at: int) -> None:
        self.path = path
        kept = [line for line in read_metrics(path) if int(line["step"] or 0) <= resume_at] if path.is_file() else []
        write_atomic(path, b"".join(_render(line) for line in kept))

    def append(self, line: Mapping[str, Number]) -> None:
        """Values that JSON cannot hold (NaN, infinity) become null."""
        with explained(self.path), open(self.path, "ab", opener=open_own) as file:
            file.write(_render(line))
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Nothing is kept open between lines."""


def _render(line: Mapping[str, Number]) -> bytes:
    finite = {name: value if value is None or abs(value) < float("inf") else None for name, value in line.items()}
    return json.dumps(finite).encode() + b"\n"


class TensorBoard:
    """The numbers of metrics.jsonl as event files, in `TENSORBOARD`. `ConfigError` where it is not installed."""

    def __init__(self, folder: Path, resume_at: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "--tensorboard needs the package tensorboard, which is not installed; "
                "run: pip install '.[tracking]', where viewkit's source is"
            ) from error
        self.writer = SummaryWriter(folder / TENSORBOARD, purge_step=resume_at + 1 if resume_at else None)

    def append(self, line: Mapping[str, Number]) -> None:
        """One point a number, at the line's step."""
        step = int(line["step"] or 0)
        for name, value in line.items():
            if name != "step" and value is not None:
                self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


@torch.no_grad()
def rank_me(features: Float[Tensor, "n d"]) -> float:
    """exp of the entropy of the singular values, normalised to sum 1 (Garrido et al. 2023, eq. 1): 1 ... min(n, d).

    The effective rank of the features: 1 when they lie on a line through 0. Computed on the first `ROWS` rows. NaN
    where a feature is not finite.
    """
    z = features[:ROWS].float()
    if not z.isfinite().all():
        return float("nan")
    gram = z @ z.T if len(z) <= z.shape[1] else z.T @ z
    sigma = torch.linalg.eigvalsh(gram.double()).clamp(min=0).sqrt()
    p = sigma / sigma.sum() + 1e-7
    return float(torch.exp(-(p * p.log()).sum()))


@torch.no_grad()
def feature_std(features: Float[Tensor, "n d"]) -> float:
    """Standard deviation over rows of each dimension of the unit-norm features, averaged, times sqrt(d): 1 on an
    evenly filled sphere, 0 when all rows are equal (Chen & He 2021, sec. 4.1)."""
    z = F.normalize(features.float(), dim=1)
    return float(z.std(dim=0, correction=0).mean() * z.shape[1] ** 0.5)
