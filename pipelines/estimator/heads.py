"""Projector, predictor and exits on a frozen trunk: every view is encoded once, and steps read what the trunk gave.

Losses, momentum encoder and schedules are those of the whole training (`model.ExitMoCoV3`); the trunk is frozen. What
it gave is kept in memory at half precision: 2 bytes times (exits + 1) times width for each view.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float16, Int
from torch import Tensor
from torch.optim import Optimizer

from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.estimator.model import ExitMoCoV3
from viewkit.pipelines.models.backbone import Backbone, Encoded
from viewkit.pipelines.pairs.source import PairSource
from viewkit.pipelines.training.monitoring import MetricsLog
from viewkit.pipelines.training.optimisers import set_rates
from viewkit.pipelines.training.schedules import Schedule
from viewkit.shards.errors import DataError

LINES = 100
"""Lines of metrics of a training."""


@dataclass(frozen=True)
class Taps:
    """What a frozen trunk gave of v views of n images: features first, then the taps of its blocks."""

    values: tuple[Float16[Tensor, "n v _"], ...]

    @property
    def num_images(self) -> int:
        return len(self.values[0])

    @property
    def num_views(self) -> int:
        return self.values[0].shape[1]

    def at(self, rows: Int[np.ndarray, " b"], views: Int[np.ndarray, " b"], device: str) -> Encoded:
        """One view of each of the rows, in fp32."""
        row, view = torch.from_numpy(rows), torch.from_numpy(views)
        return tuple(value[row, view].to(device, torch.float32) for value in self.values)


@torch.no_grad()
def encode_once(backbone: Backbone, source: PairSource, images: int, run: Run) -> Taps:
    """source: batches of v views of every row; its first epoch is taken, until there are `images` rows."""
    parts: list[list[Tensor]] = []
    num_batches = min(source.steps_per_epoch, -(-images // source.loader.batch_size))
    run.progress.start(run.stage, num_batches * source.loader.batch_size, "images")
    for place, batch in enumerate(source.epoch(0)):
        if place == num_batches:
            break
        n, v = len(batch.views[0]), len(batch.views)
        features, taps = backbone.exits(torch.cat(batch.views))  # (v n) d
        parts.append([x.unflatten(0, (v, n)).transpose(0, 1).half().cpu() for x in (features, *taps)])
        run.progress.advance(n)
    values = tuple(torch.cat(part)[:images].contiguous() for part in zip(*parts, strict=True))
    if not all(bool(value.isfinite().all()) for value in values):
        raise DataError("estimator: the trunk gives values beyond half precision; are these its weights?")
    return Taps(values)


def batches(taps: Taps, batch_size: int, steps: int, run: Run) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows, and of each a view of the first specification and one of the second: even views follow the first."""
    per_epoch = taps.num_images // batch_size
    for step in range(steps):
        epoch, place = divmod(step, per_epoch)
        if place == 0:
            generator = run.generator("heads", epoch)
            order = generator.permutation(taps.num_images)
        rows = order[place * batch_size : (place + 1) * batch_size]
        first = 2 * generator.integers(0, (taps.num_views + 1) // 2, len(rows))
        second = 2 * generator.integers(0, taps.num_views // 2, len(rows)) + 1
        yield rows, first, second


def train_heads(
    framework: ExitMoCoV3, optimiser: Optimizer, taps: Taps, schedule: Schedule, batch_size: int, run: Run
) -> Mapping[str, float]:
    """Train to `schedule.steps`; returns the last line of metrics. A stopped training starts over: it takes minutes."""
    (run.folder / "metrics.jsonl").unlink(missing_ok=True)
    log = MetricsLog(run.folder / "metrics.jsonl", resume_at=0)
    every = max(1, schedule.steps // LINES)
    run.progress.start(run.stage, schedule.steps, "steps")
    framework.train()
    framework.network.backbone.eval()
    line: dict[str, float | int] = {}
    for rows, first, second in batches(taps, batch_size, schedule.steps, run):
        step = framework.step
        set_rates(optimiser, rate=schedule.lr(step), peak=schedule.peak_lr, weight_decay=schedule.decay(step))
        one, other = (taps.at(rows, views, run.device) for views in (first, second))
        loss = framework.loss_of_encoded((one, other), (one, other))  # keys of a frozen trunk are its queries' taps
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        framework.step += 1
        framework.after_step()
        run.progress.advance(1)
        if framework.step % every == 0 or framework.step == schedule.steps:
            line = {"step": framework.step, "epoch": framework.step / (taps.num_images // batch_size)}
            line |= {"loss": loss.item(), "lr": schedule.lr(step), "spread": framework.spread(), **framework.numbers()}
            run.progress.advance(0, loss=line["loss"], lr=line["lr"])
            log.append(line)
    log.close()
    return line
