"""Runs any stage: the one place that locks, claims a folder for an identity, resumes and sums up."""

from typing import Any

from viewkit.pipelines.execution import Devices, Execution
from viewkit.pipelines.fit_runner import plan_fit, run_fit
from viewkit.pipelines.interrupts import interruptible
from viewkit.pipelines.map_plan import plan_map
from viewkit.pipelines.map_runner import run_map
from viewkit.pipelines.stage import FitStage, MapStage, Progress, Silent, Stage
from viewkit.pipelines.summary import Summary
from viewkit.shards.dataset import Dataset


def run_stage(
    stage: Stage[Any], config: Any, dataset: Dataset, execution: Devices, progress: Progress | None = None
) -> Summary:
    """Bring what `stage` writes into existence, or find that it is there.

    Raises `ConfigError`, `DataError`, `RefusedError`; whatever was whole before stays whole.
    """
    progress = progress or Silent()
    with interruptible(f"run the same command again, it {_on_return(stage)}"):
        if isinstance(stage, MapStage):
            assert isinstance(execution, Execution)
            return run_map(stage, config, dataset, execution, progress)
        assert isinstance(stage, FitStage)
        return run_fit(stage, config, dataset, execution, progress)


def _on_return(stage: Stage[Any]) -> str:
    if isinstance(stage, MapStage):
        return "goes on with the shards that are left"
    resumes = isinstance(stage, FitStage) and stage.resumes
    return "goes on from the last checkpoint" if resumes else "starts this stage over"


def plan_stage(stage: Stage[Any], config: Any, dataset: Dataset, execution: Devices) -> dict[str, Any]:
    """What `run_stage` would do and how long it might take, measured on this machine; writes nothing."""
    if isinstance(stage, MapStage):
        assert isinstance(execution, Execution)
        return plan_map(stage, config, dataset, execution)
    assert isinstance(stage, FitStage)
    return plan_fit(stage, config, dataset, execution)
