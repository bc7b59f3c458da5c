"""Runs a fit stage: once, or not at all when its artifact is whole."""

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from viewkit.pipelines.execution import Devices
from viewkit.pipelines.folder import claim, identity_of, remove_parts, run_of
from viewkit.pipelines.stage import FitStage, Progress, Silent
from viewkit.pipelines.summary import Summary
from viewkit.shards.artifact import IDENTITY, Artifact, finish_artifact
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ViewkitError
from viewkit.shards.files import explained, make_folder
from viewkit.shards.identity import Identity
from viewkit.shards.lock import writer_lock


def run_fit(stage: FitStage[Any], config: Any, dataset: Dataset, execution: Devices, progress: Progress) -> Summary:
    """Under torchrun all processes come here: the main one claims the folder, all fit, the main one finishes."""
    from viewkit.pipelines.distributed import is_main, world  # imports torch, which packing does without

    with world(execution.devices()[0], stage.name, allowed=stage.distributed) as device:
        if is_main():
            return _run_main(stage, config, dataset, device, progress)
        if _told(None):
            stage.fit(config, run_of(stage, config, dataset, device, Silent()))
        return Summary(stage.name, dataset.path / stage.writes, written=0)


def _run_main(stage: FitStage[Any], config: Any, dataset: Dataset, device: str, progress: Progress) -> Summary:
    folder = dataset.path / stage.writes
    with ExitStack() as held:
        try:
            identity = identity_of(stage, config, stage.inputs(config, dataset), {})
            make_folder(folder)
            held.enter_context(writer_lock(dataset.path, stage.writes))
            _make_room(stage, folder, identity)
            claim(folder / IDENTITY, identity)
            found = Artifact(folder, stage.writes).is_whole
        except ViewkitError:
            _told(False)  # the other processes leave, this one says why
            raise
        _told(not found)
        if not found:
            remove_parts(folder, [""])
            try:
                with explained(folder):
                    numbers = stage.fit(config, run_of(stage, config, dataset, device, progress))
            except ViewkitError:
                _drop_empty_claim(folder)
                raise
            finish_artifact(folder, identity.digest, numbers, stage.logs, stage.scratch)
        artifact = Artifact(folder, stage.writes)
        for file in artifact.files if found else ():
            artifact.path(file)  # "already there" must be true of every bit
        summary = Summary(stage.name, folder, written=0 if found else 1, numbers=artifact.numbers)
        progress.finish(**summary.values())
        return summary


def _told(fits: bool | None) -> bool:
    """Whether there is something to fit: what the main process found, on all of them."""
    from viewkit.pipelines.distributed import told

    return told(fits)


def _drop_empty_claim(folder: Path) -> None:
    """A fit that failed before it wrote anything leaves no trace, so that the corrected command is not refused."""
    if [path.name for path in folder.iterdir()] == [IDENTITY]:
        shutil.rmtree(folder)


def _make_room(stage: FitStage[Any], folder: Path, identity: Identity) -> None:
    """Delete what another identity left, where that loses nothing: see `FitStage.resumes` and `FitStage.replaces`."""
    artifact = Artifact(folder, stage.writes)
    if not (folder / IDENTITY).exists() or artifact.identity == identity:
        return
    has_work = artifact.is_whole or (stage.resumes and any(path.name != IDENTITY for path in folder.iterdir()))
    if stage.replaces or not has_work:
        shutil.rmtree(folder)
        make_folder(folder)


def plan_fit(stage: FitStage[Any], config: Any, dataset: Dataset, execution: Devices) -> dict[str, Any]:
    identity = identity_of(stage, config, stage.inputs(config, dataset), {})
    folder = dataset.path / stage.writes
    plan = {"stage": stage.name, "reads": sorted(identity.inputs), "device": execution.devices()[0]}
    artifact = Artifact(folder, stage.writes)
    if (folder / IDENTITY).exists() and artifact.is_whole and not stage.replaces:
        claim(folder / IDENTITY, identity)
        return {**plan, "done": True}
    run = run_of(stage, config, dataset, execution.devices()[0], Silent())
    return {**plan, "done": False, **stage.plan(config, run)}
