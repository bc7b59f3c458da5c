"""What ``--redo`` deletes: what a stage would replace, and all that was made from it."""

from typing import Any

from viewkit.pipelines.engine.contract import FitStage, MapStage, Stage
from viewkit.pipelines.engine.execution import Devices, Execution, is_part
from viewkit.pipelines.engine.fit import identity_of_fit
from viewkit.pipelines.engine.map import prepare_map
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError


def replaced_by(stage: Stage[Any], config: Any, dataset: Dataset, execution: Devices) -> list[str]:
    """Names of the column or artifact that `stage` writes and of all that was made from it, where it has another
    identity than it would get now; nothing where it is the same, is not there, or is written anew in any case."""
    if is_part(execution):
        raise ConfigError(
            "--redo and --part do not go together, as the tasks would delete each other's work; run one of them first "
            "without --part and with '--redo --dry-run' to see what is in the way"
        )
    there = dataset.is_column(stage.writes) or dataset.is_artifact(stage.writes)
    if not there or (isinstance(stage, FitStage) and stage.replaces):
        return []
    if isinstance(stage, MapStage):
        assert isinstance(execution, Execution)
        wanted = prepare_map(stage, config, dataset, execution).identity
    else:
        assert isinstance(stage, FitStage)
        wanted = identity_of_fit(stage, config, dataset, execution)
    found = dataset.identity(stage.writes)
    if found == wanted or wanted.is_grown_from(found):
        return []
    return [stage.writes, *dataset.made_from(stage.writes)]
