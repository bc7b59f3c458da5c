"""Runs any stage: the one place that locks, claims a folder for an identity, resumes and sums up."""

from typing import Any

from viewkit.pipelines.engine.contract import FitStage, MapStage, Progress, Silent, Stage
from viewkit.pipelines.engine.execution import Devices, Execution
from viewkit.pipelines.engine.fit import plan_fit, run_fit
from viewkit.pipelines.engine.interrupts import interruptible
from viewkit.pipelines.engine.map import run_map
from viewkit.pipelines.engine.map_plan import plan_map
from viewkit.pipelines.engine.profile import profiled
from viewkit.pipelines.engine.summary import Summary
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError
from viewkit.shards.spans import span


def run_stage(
    stage: Stage[Any], config: Any, dataset: Dataset, execution: Devices, progress: Progress | None = None
) -> Summary:
    """Bring what `stage` writes into existence, or find that it is there.

    Raises `ConfigError`, `DataError`, `RefusedError`; whatever was complete before stays complete.
    """
    progress = progress or Silent()
    again = f"run the same command again, it {_on_return(stage)}"
    with profiled(execution.profile, execution.profile_kernels), interruptible(again), span(stage.name):
        dataset.begin_writing()
        if isinstance(stage, MapStage):
            return run_map(stage, config, dataset, _of_map(stage, execution), progress)
        return run_fit(_of_fit(stage), config, dataset, execution, progress)


def _on_return(stage: Stage[Any]) -> str:
    if isinstance(stage, MapStage):
        return "goes on with the shards that are left"
    resumes = isinstance(stage, FitStage) and stage.resumes
    return "goes on with what is left" if resumes else "starts this stage over"


def plan_stage(stage: Stage[Any], config: Any, dataset: Dataset, execution: Devices) -> dict[str, Any]:
    """What `run_stage` would do and how long it might take, measured on this machine; writes nothing."""
    if isinstance(stage, MapStage):
        return plan_map(stage, config, dataset, _of_map(stage, execution))
    return plan_fit(_of_fit(stage), config, dataset, execution)


def _of_map(stage: Stage[Any], execution: Devices) -> Execution:
    if not isinstance(execution, Execution):
        raise ConfigError(
            f"{stage.name}: it writes a column and was given {type(execution).__name__}(...) as its execution; give "
            "Execution(...), which also says workers, part and max_rejects"
        )
    return execution


def _of_fit(stage: Stage[Any]) -> FitStage[Any]:
    if not isinstance(stage, FitStage):
        raise ConfigError(f"{stage!r} is neither a MapStage nor a FitStage; make its class a subclass of one of them")
    return stage
