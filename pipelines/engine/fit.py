"""Runs a fit stage: once, or not at all when its artifact is complete."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from viewkit.pipelines.engine.contract import Crew, FitStage, Progress, Silent, is_growth
from viewkit.pipelines.engine.execution import Devices, cores, is_part
from viewkit.pipelines.engine.folder import (
    claim,
    identity_of,
    refuse_another,
    remove_parts,
    run_of,
    tell_of_other_software,
)
from viewkit.pipelines.engine.parts import cluster_of, crew_of, devices_of_fit, spreads, workers_of_fit
from viewkit.pipelines.engine.summary import Summary
from viewkit.pipelines.engine.threads import one_thread, thread_advice
from viewkit.shards.artifact import IDENTITY, RECEIPT, Artifact, finish_artifact
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import RefusedError, ViewkitError
from viewkit.shards.files import explained, make_folder
from viewkit.shards.identity import Identity
from viewkit.shards.lock import Say, artifact_lock
from viewkit.shards.removal import strangers
from viewkit.shards.spans import span
from viewkit.shards.stores.mounts import bring_unfinished, forget_folder, mirror_of, settle_artifact


def run_fit(stage: FitStage[Any], config: Any, dataset: Dataset, execution: Devices, progress: Progress) -> Summary:
    """Under torchrun all processes come here: the main one claims the folder, all fit, the main one finishes."""
    from viewkit.pipelines.distributed import is_main, world  # imports torch, which packing does without

    with cluster_of(stage, execution):
        devices = devices_of_fit(stage, execution)
        if spreads(stage, execution):
            dataset = Dataset(dataset.path.absolute())  # other machines have another working folder
        with world(devices[0], stage.name, allowed=stage.distributed) as device:
            said = [*stage.advice(config, dataset, device), *_advice(stage, device)] if is_main() else []
            config = stage.for_images(stage.on_device(config, device), dataset, device)
            if is_main():
                crew = crew_of(stage, config, dataset, execution, devices, progress)
                return _run_main(stage, config, dataset, device, progress, said, crew, waits=is_part(execution))
            if _broadcast(None):
                bring_unfinished(dataset.path / stage.writes)
                stage.fit(config, run_of(stage, config, dataset, device, Silent()))
            return Summary(stage.name, dataset.path / stage.writes, written=0)


def _run_main(
    stage: FitStage[Any],
    config: Any,
    dataset: Dataset,
    device: str,
    progress: Progress,
    said: Sequence[str],
    crew: AbstractContextManager[Crew | None],
    *,
    waits: bool,
) -> Summary:
    """said: lines for whoever watches, where there is something to do. crew: entered for the fit itself. waits: for a
    process that writes the same artifact, as the other tasks of an array may; else that is refused."""
    folder = dataset.path / stage.writes
    with ExitStack() as held:
        try:
            with span("open"):
                identity = _identity(stage, config, dataset)
            make_folder(folder)
            held.enter_context(_lock(stage, dataset, identity, progress.message if waits else None))
            _make_room(stage, folder, identity)
            notes = _threads_of(stage, device)
            claimed = (folder / IDENTITY).exists()
            claim(stage, dataset, folder / IDENTITY, identity, notes)
            found = Artifact(folder, stage.writes).is_complete
        except ViewkitError:
            _broadcast(False)  # the other processes leave, this one says why
            raise
        _broadcast(not found)
        if not found:
            bring_unfinished(folder)
            if claimed and stage.resumes:
                tell_of_other_software(folder / IDENTITY, notes, progress)
            remove_parts(folder, [""])
            for line in () if claimed else said:  # work that was begun keeps its threads
                progress.message(f"{stage.name}: {line}")
            try:
                with explained(folder), nullcontext() if stage.trains else one_thread(), span("fit"), crew as hired:
                    numbers = stage.fit(config, run_of(stage, config, dataset, device, progress, hired))
            except ViewkitError:
                _drop_empty_claim(folder)
                raise
            finish_artifact(folder, identity.digest, numbers, stage.logs, stage.scratch)
        artifact = Artifact(folder, stage.writes)
        if found and (grown := dataset.grown_since(stage.writes)):
            progress.message(
                f"{stage.name}: {folder} was made before images were added to '{grown[0]}', and stays as it is; --redo "
                "makes it anew"
            )
        with span("verify"):
            for file in artifact.files if found else ():
                artifact.path(file)  # "already there" must be true of every bit
            if found:
                settle_artifact(folder, artifact.digests)
        size = sum(entry["bytes"] for entry in artifact.receipt["files"].values())
        summary = Summary(stage.name, folder, written=0 if found else 1, numbers=artifact.numbers, bytes=size)
        progress.finish(**summary.values())
        return summary


@contextmanager
def _lock(stage: FitStage[Any], dataset: Dataset, identity: Identity, wait: Say | None) -> Iterator[None]:
    """Hold the folder alone; or, where the artifact is complete and only verified, together with others."""
    while True:
        shared = _is_there(stage, dataset, identity)
        with artifact_lock(dataset.path, stage.writes, shared=shared, wait=wait):
            if shared == _is_there(stage, dataset, identity):  # else another process was faster
                yield
                return


def _is_there(stage: FitStage[Any], dataset: Dataset, identity: Identity) -> bool:
    artifact = Artifact(dataset.path / stage.writes, stage.writes)
    return (artifact.folder / IDENTITY).exists() and artifact.is_complete and artifact.identity == identity


def _identity(stage: FitStage[Any], config: Any, dataset: Dataset) -> Identity:
    """Of the artifact that is there where that was made before images were added and all else is the same: it stays
    valid, and --redo makes it anew."""
    wanted = identity_of(stage, config, stage.inputs(config, dataset), {})
    artifact = Artifact(dataset.path / stage.writes, stage.writes)
    if dataset.is_artifact(stage.writes) and artifact.is_complete and not stage.replaces:
        found = artifact.identity
        return found if is_growth(dataset, found, wanted) else wanted
    return wanted


def identity_of_fit(stage: FitStage[Any], config: Any, dataset: Dataset, execution: Devices) -> Identity:
    """The identity that `run_fit` would claim an empty folder with."""
    device = devices_of_fit(stage, execution)[0]
    config = stage.for_images(stage.on_device(config, device), dataset, device)
    return identity_of(stage, config, stage.inputs(config, dataset), {})


def _threads_of(stage: FitStage[Any], device: str) -> dict[str, str]:
    """What a training on a CPU depends on beside the software."""
    if not stage.trains or device != "cpu":
        return {}
    import torch

    return {"threads": str(torch.get_num_threads())}


def _advice(stage: FitStage[Any], device: str) -> list[str]:
    """About the threads of a training on a CPU."""
    if not stage.trains or device != "cpu":
        return []
    import torch

    advice = thread_advice(torch.get_num_threads(), cores(), os.getloadavg()[0])
    return [] if advice is None else [advice]


def _broadcast(fits: bool | None) -> bool:
    """Whether there is something to fit: what the main process found, on all of them."""
    from viewkit.pipelines.distributed import broadcast_from_main

    return broadcast_from_main(fits)


def _drop_empty_claim(folder: Path) -> None:
    """A fit that failed before it wrote anything leaves no trace, so that the corrected command is not refused.

    In a store its claim stays: another machine may have found it there, and be at work under it.
    """
    if mirror_of(folder) is not None:
        return
    with suppress(OSError):  # the folder may be gone, or unreadable: the error at hand says more
        if [path.name for path in folder.iterdir()] == [IDENTITY]:
            shutil.rmtree(folder)


def _make_room(stage: FitStage[Any], folder: Path, identity: Identity) -> None:
    """Delete what another identity left, where that loses nothing: see `FitStage.resumes` and `FitStage.replaces`.

    In a store another machine may be at work under that identity, so there nothing unfinished is deleted.
    """
    artifact = Artifact(folder, stage.writes)
    if not (folder / IDENTITY).exists() or artifact.identity == identity:
        return
    begun = mirror_of(folder) is not None or (stage.resumes and any(path.name != IDENTITY for path in folder.iterdir()))
    if stage.replaces or not (artifact.is_complete or begun):
        _refuse_strangers(stage, folder)
        forget_folder(folder)
        shutil.rmtree(folder)
        make_folder(folder)


def _refuse_strangers(stage: FitStage[Any], folder: Path) -> None:
    """`RefusedError` when something lies in the folder that the stage does not write: it would be deleted, too."""
    for path in strangers(folder, [*stage.own_files(), IDENTITY, RECEIPT]):
        raise RefusedError(
            f"{stage.name}: {path} was not written by this stage, whose folder is to be written anew; move the file "
            "away and run the command again"
        )


def plan_fit(stage: FitStage[Any], config: Any, dataset: Dataset, execution: Devices) -> dict[str, Any]:
    """Whether the artifact is there, else what the stage says it would do; writes nothing."""
    with cluster_of(stage, execution):
        return _plan_fit(stage, config, dataset, execution)


def _plan_fit(stage: FitStage[Any], config: Any, dataset: Dataset, execution: Devices) -> dict[str, Any]:
    devices, given = devices_of_fit(stage, execution), config
    device = devices[0]
    config = stage.for_images(stage.on_device(config, device), dataset, device)
    identity = _identity(stage, config, dataset)
    folder = dataset.path / stage.writes
    notes = [*stage.advice(given, dataset, device), *_advice(stage, device)]
    plan = {
        "stage": stage.name,
        **({"notes": notes} if notes else {}),
        "reads": sorted(identity.inputs),
        "device": device,
    }
    artifact = Artifact(folder, stage.writes)
    if (folder / IDENTITY).exists() and artifact.is_complete and not stage.replaces:
        refuse_another(stage, dataset, folder / IDENTITY, identity)
        return {**plan, "done": True}
    if spreads(stage, execution) and device not in ("cpu", *Devices().devices()):
        lacking = f"no estimate: the rate would be measured on {device}, which this machine lacks"
        return {**plan, "done": False, "notes": [*notes, lacking]}
    found = dict(stage.plan(config, run_of(stage, config, dataset, device, Silent())))
    if (workers := workers_of_fit(stage, execution, devices)) > 1:
        found["workers"] = workers
        if "estimated_s" in found:
            found["estimated_s"] = round(found["estimated_s"] / workers, 1)
    return {**plan, "done": False, **found}
