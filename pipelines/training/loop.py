"""The training loop of `estimator` and `pretrain`: steps, metrics, checkpoints, alarms.

A checkpoint replaces the one before it at one stroke, so the folder holds a usable one at any moment; batches and
draws depend on (seed, epoch, step) alone, so a resumed run has the losses of an undisturbed one, bit for bit on the
same machine and number of threads.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.optim import Optimizer

from viewkit.pipelines.models.checkpoint import load_training, save_training
from viewkit.pipelines.stage import Run
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.metrics import MetricsLog
from viewkit.pipelines.training.optimisers import set_rates
from viewkit.pipelines.training.pairs import PairBatch
from viewkit.pipelines.training.schedules import warmup_cosine
from viewkit.shards.errors import DataError

CHECKPOINT = "checkpoint/last.safetensors"
METRICS = "metrics.jsonl"
LOG_EVERY = 10
"""Steps between two lines of metrics; checkpoints are written at such steps only."""
CHECKPOINT_S = 30.0
"""Least time between two checkpoints."""
COLLAPSED = 0.02
"""Spread of outputs (1 = evenly on the sphere) below which they count as all the same."""
PATIENCE = 3
"""Lines of metrics in a row, after the warm-up, with a collapsed spread that stop the training."""

Precision = Literal["fp32", "bf16"]


@runtime_checkable
class Source(Protocol):
    """Batches of rendered pairs; `PairSource` is one."""

    @property
    def steps_per_epoch(self) -> int: ...

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[PairBatch]: ...


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast. peak_lr: the learning rate after the warm-up, already scaled to the batch."""

    steps: int
    warmup_steps: int
    peak_lr: float
    precision: Precision = "fp32"

    def lr(self, step: int) -> float:
        return warmup_cosine(step, steps=self.steps, warmup_steps=self.warmup_steps, peak=self.peak_lr)


def train(
    framework: Framework,
    optimiser: Optimizer,
    source: Source,
    schedule: Schedule,
    run: Run,
    owner: Mapping[str, Any],
    *,
    checkpoint_s: float | None = None,
) -> dict[str, float | int]:
    """Train to `schedule.steps`, from the folder's checkpoint if there is one; return the last numbers.

    owner: JSON values that a checkpoint must share to be resumed. Raises `DataError` when the loss is not finite or
    the outputs collapse, `RefusedError` when the checkpoint belongs to another training.
    """
    path = run.folder / CHECKPOINT
    last: dict[str, float | int] = {}
    if path.is_file():
        framework.step, last = load_training(path, framework, optimiser, owner)
        run.progress.message(f"{run.stage}: goes on after step {framework.step} of {schedule.steps}")
    log = MetricsLog(run.folder / METRICS, resume_at=framework.step)
    run.progress.start(run.stage, schedule.steps, "steps", framework.step)
    every_s = CHECKPOINT_S if checkpoint_s is None else checkpoint_s
    watch = Watch(run.stage, schedule, run.folder)
    framework.train()
    saved_at = time.perf_counter()
    batches = _batches(source, framework.step, schedule.steps)
    while framework.step < schedule.steps:
        window = Window(framework.step)
        for batch in islice(batches, min(LOG_EVERY, schedule.steps - framework.step)):
            window.add(train_step(framework, optimiser, batch, schedule, run.device), batch)
            run.progress.advance(1, **{name: last[name] for name in ("loss", "lr") if name in last})
        last = window.line(framework, source.steps_per_epoch, schedule)
        log.append(last)
        watch.check(last)
        done = framework.step == schedule.steps
        if done or time.perf_counter() - saved_at >= every_s:
            save_training(path, framework, optimiser, step=framework.step, owner=owner, numbers=last)
            saved_at = time.perf_counter()
    return last


def train_step(framework: Framework, optimiser: Optimizer, batch: PairBatch, schedule: Schedule, device: str) -> Tensor:
    """One step of the optimiser on one batch; returns the loss, still on the device."""
    set_rates(optimiser, rate=schedule.lr(framework.step), peak=schedule.peak_lr)
    kind = torch.device(device).type
    with torch.autocast(kind, dtype=torch.bfloat16, enabled=schedule.precision == "bf16"):
        loss = framework.loss(batch.views1, batch.views2, batch.weights)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
    framework.step += 1
    framework.after_step()
    return loss.detach()


def time_steps(
    framework: Framework, optimiser: Optimizer, source: Source, schedule: Schedule, device: str, *, count: int = 3
) -> float:
    """Seconds a step takes here, data included: the mean of `count` real steps after one more that is not counted."""
    framework.train()
    batches = _batches(source, 0, count + 1)
    train_step(framework, optimiser, next(batches), schedule, device)
    started = time.perf_counter()
    for batch in batches:
        loss = train_step(framework, optimiser, batch, schedule, device)
    float(loss)
    return (time.perf_counter() - started) / count


def _batches(source: Source, start: int, stop: int) -> Iterator[PairBatch]:
    """Batches of the steps start ... stop - 1, epoch after epoch."""
    step = start
    while step < stop:
        epoch, first = divmod(step, source.steps_per_epoch)
        for batch in islice(source.epoch(epoch, first), stop - step):
            yield batch
            step += 1


class Window:
    """The steps between two lines of metrics."""

    def __init__(self, step: int) -> None:
        self.first, self.started = step, time.perf_counter()
        self.losses: list[Tensor] = []
        self.counts: Counter[str] = Counter()
        self.num_rows, self.wait_s, self.render_s = 0, 0.0, 0.0

    def add(self, loss: Tensor, batch: PairBatch) -> None:
        self.losses.append(loss)
        self.counts.update(batch.counts)
        self.num_rows += len(batch.views1)
        self.wait_s += batch.wait_s
        self.render_s += batch.render_s

    def line(self, framework: Framework, steps_per_epoch: int, schedule: Schedule) -> dict[str, float | int]:
        """One line of metrics.jsonl. loss: mean of the window's steps; step: finished steps; the rest by its name."""
        loss = float(torch.stack(self.losses).float().mean())
        wall_s = time.perf_counter() - self.started
        return {
            "step": framework.step,
            "epoch": framework.step / steps_per_epoch,
            "loss": loss,
            "lr": schedule.lr(framework.step - 1),
            "spread": framework.spread(),
            **framework.numbers(),
            **self.counts,
            "images_per_s": self.num_rows / wall_s,
            "wait_share": self.wait_s / wall_s,
            "render_share": self.render_s / wall_s,
        }


class Watch:
    """Stops a training that can only waste time."""

    def __init__(self, stage: str, schedule: Schedule, folder: Path) -> None:
        self.stage, self.schedule = stage, schedule
        self.start_over = f"delete {folder} first, it belongs to the old settings"
        self.low = 0

    def check(self, line: Mapping[str, float | int]) -> None:
        """Raises `DataError` with advice when the loss is not finite or the outputs have collapsed."""
        where = f"{self.stage}: step {line['step']}"
        rate = f"the learning rate is {line['lr']:.3g}"
        if not math.isfinite(line["loss"]):
            precision = ", train with --precision fp32" if self.schedule.precision != "fp32" else ""
            raise DataError(
                f"{where}: the loss is {line['loss']} and {rate}; lower --lr or lengthen --warmup-epochs{precision}; "
                f"{self.start_over}"
            )
        collapsed = line["step"] > self.schedule.warmup_steps and line["spread"] < COLLAPSED
        self.low = self.low + 1 if collapsed else 0
        if self.low >= PATIENCE:
            raise DataError(
                f"{where}: the outputs have collapsed, all images look the same to the network (spread "
                f"{line['spread']:.2g} of 1 for {PATIENCE * LOG_EVERY} steps) and {rate}; lower --lr, lengthen "
                f"--warmup-epochs or raise --batch-size; {self.start_over}"
            )
