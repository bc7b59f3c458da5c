"""The training loop of `estimator` and `pretrain`: steps, metrics, checkpoints, probes, alarms.

A checkpoint replaces the one before it at one stroke, so the folder holds a usable one at any moment; batches and
draws depend on (seed, epoch, step) alone, so a resumed run has the losses of an undisturbed one, bit for bit on the
same machine and number of threads. Under torchrun every process runs this loop; the main one writes.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.optim import Optimizer

from viewkit.pipelines.distributed import barrier, gather, is_main, mean_over_processes, world_size
from viewkit.pipelines.models.checkpoint import load_training, save_training
from viewkit.pipelines.stage import Run
from viewkit.pipelines.training.alarms import Watch
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.health import feature_std, rank_me
from viewkit.pipelines.training.metrics import MetricsLog
from viewkit.pipelines.training.optimisers import set_rates
from viewkit.pipelines.training.pairs import ViewBatch
from viewkit.pipelines.training.schedules import warmup_cosine
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.training.tracking import TensorBoard

CHECKPOINT = "checkpoint/last.safetensors"
METRICS = "metrics.jsonl"
LOG_EVERY = 10
"""Steps between two lines of metrics; checkpoints are written at such steps only."""
CHECKPOINT_S = 30.0
"""Least time between two checkpoints."""

Precision = Literal["fp32", "bf16", "fp16"]
Picker = Callable[[Framework, ViewBatch, Stepper], ViewBatch]
"""Chooses, among the views of a batch, those that are trained on (hard views); draws nothing."""
Probe = Callable[[Framework], Mapping[str, float]]
"""Looks at the network on the way, e.g. by nearest neighbours; gives numbers for metrics.jsonl."""


@runtime_checkable
class Source(Protocol):
    """Batches of rendered views; `PairSource` is one."""

    @property
    def steps_per_epoch(self) -> int: ...

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[ViewBatch]: ...


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, how fast, and in what numbers. peak_lr: the learning rate after the warm-up, scaled to the batch.

    weight_decay: from the first to the last step, along half a cosine; None where it stays as the optimiser has it.
    micro_batch: rows that pass the backbone at once, see `Stepper`.
    """

    steps: int
    warmup_steps: int
    peak_lr: float
    weight_decay: tuple[float, float] | None = None
    precision: Precision = "fp32"
    micro_batch: int | None = None

    def lr(self, step: int) -> float:
        return warmup_cosine(step, steps=self.steps, warmup_steps=self.warmup_steps, peak=self.peak_lr)

    def decay(self, step: int) -> float | None:
        if self.weight_decay is None:
            return None
        start, end = self.weight_decay
        return warmup_cosine(step, steps=self.steps, warmup_steps=0, peak=start, final=end)


@dataclass(frozen=True, kw_only=True)
class Watching:
    """What is looked at on the way, without any effect on it.

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


def train(
    framework: Framework,
    optimiser: Optimizer,
    source: Source,
    schedule: Schedule,
    run: Run,
    owner: Mapping[str, Any],
    *,
    picker: Picker | None = None,
    watching: Watching | None = None,
) -> dict[str, float | int]:
    """Train to `schedule.steps`, from the folder's checkpoint if there is one; return the last numbers.

    owner: JSON values that a checkpoint must share to be resumed. Raises `DataError` when the loss is not finite or
    the outputs collapse, `RefusedError` when the checkpoint belongs to another training.
    """
    path = run.folder / CHECKPOINT
    watching = watching or Watching()
    last: dict[str, float | int] = {}
    stepper = Stepper.make(run.device, schedule.precision, schedule.micro_batch)
    if path.is_file():
        framework.step, last = load_training(path, framework, optimiser, owner, stepper.scaler)
        run.progress.message(f"{run.stage}: goes on after step {framework.step} of {schedule.steps}")
    barrier()  # nobody writes a checkpoint before everybody has read the one there was
    logs = _logs(run, watching, framework.step)
    run.progress.start(run.stage, schedule.steps, "steps", framework.step)
    every_s = CHECKPOINT_S if watching.checkpoint_s is None else watching.checkpoint_s
    watch = Watch(run.stage, run.folder, warmup_steps=schedule.warmup_steps, precision=schedule.precision)
    framework.train()
    saved_at = time.perf_counter()
    batches = _batches(source, framework.step, schedule.steps)
    while framework.step < schedule.steps:
        window = Window(framework.step)
        for batch in islice(batches, watching.next_line(framework.step, schedule.steps) - framework.step):
            chosen = batch if picker is None else picker(framework, batch, stepper)
            window.add(train_step(framework, optimiser, chosen, schedule, stepper), chosen)
            run.progress.advance(1, **{name: last[name] for name in ("loss", "lr") if name in last})
        last = window.line(framework, source.steps_per_epoch, schedule)
        if watching.probes_at(framework.step) and is_main():
            assert watching.probe is not None
            last |= watching.probe(framework)
            framework.train()
        for log in logs:
            log.append(last)
        watch.check(last)
        done = framework.step == schedule.steps
        if is_main() and (done or time.perf_counter() - saved_at >= every_s):
            save_training(
                path, framework, optimiser, step=framework.step, owner=owner, numbers=last, scaler=stepper.scaler
            )
            saved_at = time.perf_counter()
    for log in logs:
        log.close()
    barrier()
    return last


def _logs(run: Run, watching: Watching, step: int) -> list[MetricsLog | TensorBoard]:
    if not is_main():
        return []
    logs: list[MetricsLog | TensorBoard] = [MetricsLog(run.folder / METRICS, resume_at=step)]
    return [*logs, TensorBoard(run.folder, step)] if watching.tensorboard else logs


def train_step(
    framework: Framework,
    optimiser: Optimizer,
    batch: ViewBatch,
    schedule: Schedule,
    stepper: Stepper,
) -> Tensor:
    """One step of the optimiser on one batch; returns the loss, still on the device."""
    step = framework.step
    set_rates(optimiser, rate=schedule.lr(step), peak=schedule.peak_lr, weight_decay=schedule.decay(step))
    return stepper(framework, optimiser, batch.views, batch.weights, batch.targets)


def time_steps(
    framework: Framework,
    optimiser: Optimizer,
    source: Source,
    schedule: Schedule,
    device: str,
    *,
    picker: Picker | None = None,
    count: int = 3,
) -> float:
    """Seconds a step takes here, data included: the mean of `count` real steps after one more that is not counted."""
    framework.train()
    stepper = Stepper.make(device, schedule.precision, schedule.micro_batch)
    started = time.perf_counter()
    for step, batch in enumerate(_batches(source, 0, count + 1)):
        chosen = batch if picker is None else picker(framework, batch, stepper)
        float(train_step(framework, optimiser, chosen, schedule, stepper))  # waits for the device
        started = time.perf_counter() if step == 0 else started
    return (time.perf_counter() - started) / count


def _batches(source: Source, start: int, stop: int) -> Iterator[ViewBatch]:
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

    def add(self, loss: Tensor, batch: ViewBatch) -> None:
        self.losses.append(loss)
        self.counts.update(batch.counts)
        self.num_rows += len(batch.views[0]) * world_size()
        self.wait_s += batch.wait_s
        self.render_s += batch.render_s

    def line(self, framework: Framework, steps_per_epoch: int, schedule: Schedule) -> dict[str, float | int]:
        """One line of metrics.jsonl. loss: mean of the window's steps; step: finished steps; the rest by its name.

        Loss, spread and counts are those of all processes.
        """
        own = torch.stack(self.losses).float().mean()
        numbers = [float(own), framework.spread(), *self.counts.values()]
        # Made from the loss, so on its device: NCCL takes no other.
        loss, spread, *counts = mean_over_processes(own.new_tensor(numbers, dtype=torch.float64)).tolist()
        wall_s = time.perf_counter() - self.started
        return {
            "step": framework.step,
            "epoch": framework.step / steps_per_epoch,
            "loss": loss,
            "lr": schedule.lr(framework.step - 1),
            "spread": spread,
            **_health(framework),
            **framework.numbers(),
            **{name: round(count * world_size()) for name, count in zip(self.counts, counts, strict=True)},
            "images_per_s": self.num_rows / wall_s,
            "wait_share": self.wait_s / wall_s,
            "render_share": self.render_s / wall_s,
        }


def _health(framework: Framework) -> dict[str, float]:
    """How many dimensions the features of the last batch, of all processes, still fill."""
    if framework.features is None:
        return {}
    features = gather(framework.features)
    return {"rank_me": rank_me(features), "feature_std": feature_std(features)}
