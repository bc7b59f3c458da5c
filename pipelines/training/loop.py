"""The training loop of `estimator`, `generator` and `pretrain`: steps, metrics, checkpoints, probes, alarms.

A checkpoint is replaced atomically, so the folder holds a usable one at any moment; batches and random numbers depend
on (seed, epoch, step) alone, so a resumed run has the losses of an undisturbed one, bit for bit on the same machine and
number of threads. Under torchrun every process runs this loop; the main one writes.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.optim import Optimizer

from viewkit.pipelines.distributed import barrier, gather, is_main, mean_over_processes, world_size
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.models.checkpoint import load_training, save_training
from viewkit.pipelines.models.dropping import seed_drops
from viewkit.pipelines.pairs.source import ViewBatch
from viewkit.pipelines.training.metrics import METRICS
from viewkit.pipelines.training.monitoring import Alarms, MetricsLog, Monitoring, TensorBoard, feature_std, rank_me
from viewkit.pipelines.training.optimisers import set_rates
from viewkit.pipelines.training.schedules import Schedule
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.training.trainable import Trainable
from viewkit.shards.spans import span, unit

CHECKPOINT = "checkpoint/last.safetensors"
CHECKPOINT_S = 30.0
"""Least time between two checkpoints."""
SHOWN = ("loss", "lr", "knn_top1")
"""Numbers of a line of metrics that whoever watches sees."""
TIMED_ROWS = {"cpu": (8, 32), "cuda": (32, 128)}
"""Rows of the two small batches that a plan times: what they need of memory is bounded, whatever the batch is."""
TIMED_S = 4.0
"""Seconds after which a plan times no further step."""


@dataclass(frozen=True)
class TrainingFiles:
    """Where in the folder a training keeps its checkpoint and its metrics; one that is the first of two has its own."""

    checkpoint: str = CHECKPOINT
    metrics: str = METRICS


BatchSelector = Callable[[Any, ViewBatch, Stepper], ViewBatch]
"""Chooses, among the views of a batch, those that are trained on by what is trained, a framework (hard views); samples
nothing."""


@runtime_checkable
class Source(Protocol):
    """Batches of rendered views; `PairSource` is one."""

    @property
    def steps_per_epoch(self) -> int: ...

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[ViewBatch]: ...


@runtime_checkable
class SizedSource(Source, Protocol):
    """A source whose batches may be made smaller, so that a plan can time them."""

    @property
    def batch_size(self) -> int: ...

    def with_batches_of(self, rows: int) -> Source: ...


def train(
    framework: Trainable,
    optimiser: Optimizer,
    source: Source,
    schedule: Schedule,
    run: Run,
    owner: Mapping[str, Any],
    *,
    selector: BatchSelector | None = None,
    monitoring: Monitoring | None = None,
    files: TrainingFiles | None = None,
) -> dict[str, float | int]:
    """Train to `schedule.steps`, from the folder's checkpoint if there is one; return the last numbers.

    owner: JSON values that a checkpoint must share to be resumed. Raises `DataError` when the loss is not finite or
    the outputs collapse, `RefusedError` when the checkpoint belongs to another training.
    """
    files = files or TrainingFiles()
    path = run.folder / files.checkpoint
    monitoring = monitoring or Monitoring()
    last: dict[str, float | int] = {}
    stepper = Stepper.make(run.device, schedule.precision, schedule.micro_batch)
    if path.is_file():
        framework.step, last = load_training(path, framework, optimiser, owner, stepper.scaler)
        run.progress.message(f"{run.stage}: resuming after step {framework.step} of {schedule.steps}")
    barrier()  # no process writes a checkpoint before all have read the one there was
    logs = _logs(run, monitoring, files.metrics, framework.step)
    run.progress.start(run.stage, schedule.steps, "steps", framework.step)
    every_s = CHECKPOINT_S if monitoring.checkpoint_s is None else monitoring.checkpoint_s
    alarms = Alarms(
        run.stage,
        run.folder,
        warmup_steps=schedule.warmup_steps,
        precision=schedule.precision,
        slower=framework.slower,
    )
    framework.train()
    saved_at = time.perf_counter()
    batches = _batches(source, framework.step, schedule.steps)
    while framework.step < schedule.steps:
        window = Window(framework.step)
        for _ in range(monitoring.next_line(framework.step, schedule.steps) - framework.step):
            with unit("step", step=framework.step):
                with span("data"):
                    batch = next(batches)
                seed_drops(framework, schedule.seed, framework.step)
                with span("select"):
                    chosen = batch if selector is None else selector(framework, batch, stepper)
                window.add(train_step(framework, optimiser, chosen, schedule, stepper), chosen)
            run.progress.advance(1)
        with span("metrics"):
            last = window.line(framework, source.steps_per_epoch, schedule)
        if monitoring.probes_at(framework.step) and is_main():
            assert monitoring.probe is not None
            with span("probe"):
                last |= monitoring.probe(framework)
            framework.train()
        run.progress.advance(0, **{name: last[name] for name in SHOWN if name in last})
        for log in logs:
            log.append(last)
        alarms.check(last)
        done = framework.step == schedule.steps
        if is_main() and (done or time.perf_counter() - saved_at >= every_s):
            with span("checkpoint"):
                save_training(
                    path, framework, optimiser, step=framework.step, owner=owner, numbers=last, scaler=stepper.scaler
                )
                run.keep()
            saved_at = time.perf_counter()
    for log in logs:
        log.close()
    barrier()
    return last


def _logs(run: Run, monitoring: Monitoring, metrics: str, step: int) -> list[MetricsLog | TensorBoard]:
    if not is_main():
        return []
    logs: list[MetricsLog | TensorBoard] = [MetricsLog(run.folder / metrics, resume_at=step)]
    return [*logs, TensorBoard(run.folder, step)] if monitoring.tensorboard else logs


def train_step(
    framework: Trainable,
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
    framework: Trainable,
    optimiser: Optimizer,
    source: SizedSource,
    schedule: Schedule,
    device: str,
    *,
    selector: BatchSelector | None = None,
) -> float:
    """Seconds a step would take here, data included, extrapolated from real steps on two small batches.

    A step costs a part that every step has, and a part for each row; both come from the two batches. A batch that is
    no larger than the first of them is timed as it is.
    """
    framework.train()
    stepper = Stepper.make(device, schedule.precision, schedule.micro_batch)
    rows, found = source.batch_size, []
    begin = time.perf_counter()
    least = min(rows, 2 * int(getattr(framework, "bn_splits", 1)))  # batch norms need two rows a part
    for size in sorted({max(least, min(rows, each)) for each in TIMED_ROWS[torch.device(device).type]}):
        fastest = float("inf")
        for step, started, batch in _timed(_batches(source.with_batches_of(size), 0, 3)):
            seed_drops(framework, schedule.seed, step)
            chosen = batch if selector is None else selector(framework, batch, stepper)
            float(train_step(framework, optimiser, chosen, schedule, stepper))  # waits for the device
            fastest = min(fastest, time.perf_counter() - started)
            if time.perf_counter() - begin > TIMED_S:
                break
        found.append((size, fastest))
        if time.perf_counter() - begin > TIMED_S:
            break
    return extrapolated(found, rows)


def extrapolated(found: Sequence[tuple[int, float]], rows: int) -> float:
    """Seconds for a batch of so many rows, from (rows, seconds) of one or two smaller ones, on a straight line.

    A line that falls, as noise may have it, says nothing: the larger batch's seconds are then in proportion.
    """
    (size, seconds), *more = found
    if not more:
        return seconds * rows / size
    larger, longer = more[0]
    slope = (longer - seconds) / (larger - size)
    return longer + slope * (rows - larger) if slope > 0 else longer * rows / larger


def _timed(batches: Iterator[ViewBatch]) -> Iterator[tuple[int, float, ViewBatch]]:
    """(number, when its loading began, batch) of each."""
    step, started = 0, time.perf_counter()
    for batch in batches:
        yield step, started, batch
        step, started = step + 1, time.perf_counter()


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

    def line(self, framework: Trainable, steps_per_epoch: int, schedule: Schedule) -> dict[str, float | int]:
        """One line of metrics.jsonl. loss: mean of the window's steps; step: finished steps; the rest by its name.

        Loss, spread and counts are those of all processes.
        """
        own = torch.stack(self.losses).float().mean()
        spread = framework.spread()
        numbers = [float(own), *([] if spread is None else [spread]), *map(float, self.counts.values())]
        # Made from the loss, so on its device: NCCL takes no other.
        loss, *means = mean_over_processes(own.new_tensor(numbers, dtype=torch.float64)).tolist()
        watched, counts = ({}, means) if spread is None else ({"spread": means[0]}, means[1:])
        wall_s = time.perf_counter() - self.started
        return {
            "step": framework.step,
            "epoch": framework.step / steps_per_epoch,
            "loss": loss,
            "lr": schedule.lr(framework.step - 1),
            **watched,
            **_health(framework),
            **framework.numbers(),
            **{name: round(count * world_size()) for name, count in zip(self.counts, counts, strict=True)},
            "images_per_s": self.num_rows / wall_s,
            "wait_share": self.wait_s / wall_s,
            "render_share": self.render_s / wall_s,
        }


def _health(framework: Trainable) -> dict[str, float]:
    """How many dimensions the features of the last batch, of all processes, still fill."""
    if framework.features is None:
        return {}
    features = gather(framework.features)
    return {"rank_me": rank_me(features), "feature_std": feature_std(features)}
