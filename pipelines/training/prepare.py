"""From settings to everything the loop needs: one preparation for `estimator` and `pretrain`, and its plan."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch.optim import Optimizer

from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.labels import labels_of
from viewkit.pipelines.models.norms import share_norms
from viewkit.pipelines.pairs.samples import SampleReader
from viewkit.pipelines.pairs.source import PairSource
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.knn import KnnProbe
from viewkit.pipelines.training.loop import BatchSelector, time_steps
from viewkit.pipelines.training.monitoring import Monitoring
from viewkit.pipelines.training.optimisers import create_optimiser, decay_all
from viewkit.pipelines.training.options import OptimiserName, TrainingSettings
from viewkit.pipelines.training.schedules import LrSchedule, Schedule, count_steps, decided
from viewkit.pipelines.training.step import check_micro_batch, compile_backbones

AnyFramework = TypeVar("AnyFramework", bound=Framework)


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """The optimiser, how it decays weights, and how its rate falls; see `parameter_groups` and `Schedule`."""

    optimiser: OptimiserName
    weight_decay: float
    weight_decay_end: float | None = None
    decay_all: bool = False
    lr_end: float = 0.0
    lr_schedule: LrSchedule = "cosine"


@dataclass(frozen=True, kw_only=True)
class Training(Generic[AnyFramework]):
    """Everything the loop needs. probe: for the end of the training, too."""

    framework: AnyFramework
    optimiser: Optimizer
    source: PairSource
    schedule: Schedule
    selector: BatchSelector | None
    monitoring: Monitoring
    probe: KnnProbe

    def plan(self, device: str) -> dict[str, Any]:
        """Numbers for ``--dry-run``; a few real steps on small batches are timed, in seconds and bounded memory."""
        step_s = time_steps(self.framework, self.optimiser, self.source, self.schedule, device, selector=self.selector)
        return {
            "rows": self.source.loader.num_rows,
            "steps": self.schedule.steps,
            "step_s": round(step_s, 4),
            "estimated_s": round(step_s * self.schedule.steps, 1),
        }


def prepare_training(
    run: Run,
    source: PairSource,
    settings: TrainingSettings,
    optimisation: Optimisation,
    build: Callable[[int], AnyFramework],
    selector: BatchSelector | None = None,
) -> Training[AnyFramework]:
    """Networks on the device, optimiser, schedule and monitoring.

    build: gives the framework for this number of steps, on the CPU. Raises `ConfigError` before any work where a
    setting does not fit the data.
    """
    schedule = schedule_of(settings, optimisation, source.steps_per_epoch)
    framework = build(schedule.steps)
    check_micro_batch(framework.encoder, settings.micro_batch, source.loader.batch_size)
    share_norms(framework, run.device)
    framework = framework.to(run.device)
    probe = KnnProbe(run.dataset.column("images"), SampleReader(), source.policy, run.device, labels_of(run.dataset))
    if settings.knn_epochs is not None:
        probe.check("knn_epochs", settings.knn_epochs)
    monitoring = Monitoring(
        probe=probe,
        probe_steps=None if settings.knn_epochs is None else settings.knn_epochs * source.steps_per_epoch,
        tensorboard=settings.tensorboard,
    )
    groups = framework.groups(optimisation.weight_decay)
    if optimisation.decay_all:
        groups = decay_all(groups, optimisation.weight_decay)
    optimiser = create_optimiser(optimisation.optimiser, groups)
    if settings.compile:
        compile_backbones(framework)
    return Training(
        framework=framework,
        optimiser=optimiser,
        source=source,
        schedule=schedule,
        selector=selector,
        monitoring=monitoring,
        probe=probe,
    )


def schedule_of(settings: TrainingSettings, optimisation: Optimisation, steps_per_epoch: int) -> Schedule:
    """Settings in epochs as a schedule in steps."""
    steps, warmup_steps = count_steps(
        epochs=settings.epochs,
        steps=settings.steps,
        warmup_epochs=settings.warmup_epochs,
        steps_per_epoch=steps_per_epoch,
        fit_warmup=settings.fit_warmup,
    )
    decay, end = optimisation.weight_decay, optimisation.weight_decay_end
    return Schedule(
        steps=steps,
        warmup_steps=warmup_steps,
        peak_lr=settings.peak_lr,
        lr_end=optimisation.lr_end,
        lr_schedule=optimisation.lr_schedule,
        seed=settings.seed,
        weight_decay=None if end is None else (decay, end),
        precision=decided(settings.precision),
        micro_batch=settings.micro_batch,
    )
