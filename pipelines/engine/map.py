"""Runs a map stage: the shards that are left, on one process or several, and the share of rejects."""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from viewkit.pipelines.engine.contract import MapStage, Progress
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.folder import (
    claim,
    identity_of,
    remove_parts,
    take_back,
    tell_of_other_software,
)
from viewkit.pipelines.engine.schedule import Limits
from viewkit.pipelines.engine.shard import ShardWork
from viewkit.pipelines.engine.summary import Summary
from viewkit.pipelines.engine.threads import one_thread
from viewkit.pipelines.engine.workers import Report, run_shards
from viewkit.shards.column import Column, ShardFacts
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, ViewkitError
from viewkit.shards.files import make_folder
from viewkit.shards.identity import COLUMN, Identity
from viewkit.shards.lock import claim_lock, writer_lock
from viewkit.shards.receipt import Receipt, shard_name
from viewkit.shards.row import Reject
from viewkit.shards.sources import Sources
from viewkit.shards.spans import span
from viewkit.shards.spool import remove_spools
from viewkit.shards.stores.mounts import list_urls, mirror_of
from viewkit.shards.writer import settle

REJECTS_TOLD = 3
"""Rejects that are told where nothing is left to list them by."""


class TooManyRejects(DataError):
    """More than the share that is allowed."""


@dataclass(frozen=True)
class Prepared:
    """What running and planning a map stage both need. devices: where models run; ``["cpu"]`` for a stage without."""

    stage: MapStage[Any]
    config: Any
    dataset: Dataset
    execution: Execution
    sources: Sources
    identity: Identity
    devices: list[str]

    @property
    def folder(self) -> Path:
        return self.dataset.path / self.stage.writes

    @property
    def work(self) -> ShardWork:
        return ShardWork(self.stage, self.config, self.dataset, self.sources, self.identity, self.devices)

    def divide(self, complete: list[int]) -> tuple[list[int], list[int]]:
        """(done, left) of the shards that this part has to do: every n-th one."""
        index, count = self.execution.part_of()
        share, finished = range(index, self.sources.num_shards, count), set(complete)
        return [shard for shard in share if shard in finished], [shard for shard in share if shard not in finished]

    def rows_in(self, shards: list[int]) -> int:
        return sum(len(self.sources.keys(shard)) for shard in shards)


def prepare_map(stage: MapStage[Any], config: Any, dataset: Dataset, execution: Execution) -> Prepared:
    """Look at the inputs; nothing is written. Raises what `Stage.inputs` and `Execution.devices` raise."""
    if not execution.is_here:
        dataset = Dataset(dataset.path.absolute())  # other machines have another working folder
    inputs = stage.inputs(config, dataset)  # first: it says what is missing
    devices = _devices(stage, execution)
    config = stage.for_images(stage.on_device(config, devices[0]), dataset, devices[0])
    sources = stage.sources(config, dataset)
    identity = identity_of(stage, config, inputs, {"shards": sources.num_shards, "rows": sources.num_rows})
    identity = as_there(stage, config, dataset, identity)
    return Prepared(stage, config, dataset, execution, sources, identity, devices)


def _devices(stage: MapStage[Any], execution: Execution) -> list[str]:
    if not stage.uses_torch:
        return ["cpu"]
    if execution.is_here:
        return execution.devices()
    from viewkit.pipelines.engine.ray_cluster import device_on_ray  # Ray is an extra

    return [device_on_ray(execution)]


def on_cluster(execution: Execution) -> AbstractContextManager[None]:
    """Inside, this process is connected to the cluster that shards are done on, if they are."""
    if execution.is_here:
        return nullcontext()
    from viewkit.pipelines.engine.ray_cluster import connected

    return connected(execution.on)


def as_there(stage: MapStage[Any], config: Any, dataset: Dataset, wanted: Identity) -> Identity:
    """`wanted` with the states that a column has been in before it grew, or before it is to grow now."""
    if not dataset.is_column(stage.writes):
        return wanted
    found = dataset.column(stage.writes).identity
    if replace(found, earlier=()) == wanted:
        return found
    return wanted.as_grown_from(found) if stage.grows(config, dataset, found, wanted) else wanted


def _settle(folder: Path, shards: list[int], identity: Identity) -> None:
    by_state: dict[str, list[int]] = {}
    for shard in shards:
        by_state.setdefault(identity.digest_for(shard), []).append(shard)
    for digest, members in by_state.items():
        settle(folder, members, digest)


def run_map(stage: MapStage[Any], config: Any, dataset: Dataset, execution: Execution, progress: Progress) -> Summary:
    with on_cluster(execution):
        return _run_map(stage, config, dataset, execution, progress)


def _run_map(stage: MapStage[Any], config: Any, dataset: Dataset, execution: Execution, progress: Progress) -> Summary:
    with span("open"):
        ready = prepare_map(stage, config, dataset, execution)
    folder = ready.folder
    make_folder(folder)
    with writer_lock(dataset.path, stage.writes, execution.part_of()):
        with claim_lock(dataset.path, stage.writes), span("claim"):
            remove_parts(folder, [COLUMN])
            if execution.part_of()[1] == 1:
                drop_empty_claim(folder)
                make_folder(folder)
            before = claim(stage, dataset, folder / COLUMN, ready.identity)
        column = Column(folder)
        done, left = ready.divide(column.complete_shards())
        remove_parts(folder, [shard_name(shard) for shard in done])
        remove_spools(folder, done)
        _settle(folder, done, ready.identity)
        summary = Summary(stage.name, folder)
        for facts in column.facts(done):
            summary.add(facts)
        total = summary.seen + ready.rows_in(left)
        names = [shard_name(shard) for shard in left]
        if done and left:
            tell_of_other_software(folder / COLUMN, None, progress)
        if left and ready.identity.earlier and min(left) >= (kept := ready.identity.earlier[-1].plan["shards"]):
            progress.message(f"{stage.name}: {stage.writes} has {kept} shards already; only the new images are done")
        for note in ready.sources.notes:
            progress.message(note)
        remove_parts(folder, names)
        new: list[Reject] = []
        try:
            _check_rejects(stage, summary, total, execution.max_rejects)
            progress.start(stage.name, total, "rows", summary.seen)
            with closing(_receipts(ready, left, progress)) as receipts:
                for receipt in receipts:
                    facts = ShardFacts.of(receipt)
                    summary.add(facts)
                    new += facts.rejects[: REJECTS_TOLD - len(new)]
                    summary.written += 1
                    shards = f"{summary.shards}/{len(done) + len(left)}"
                    progress.advance(0, shards=shards, rejects=summary.rejected.total())
                    _check_rejects(stage, summary, total, execution.max_rejects)
        except TooManyRejects as error:
            raise DataError(f"{error}; {_after_rejects(ready, before, new)}") from error
        except ViewkitError:
            remove_parts(folder, names)
            if execution.part_of()[1] == 1:
                drop_empty_claim(folder)  # so that the corrected command is not refused
            raise
        finally:
            remove_parts(folder, names)
        _settle(folder, left, ready.identity)
        list_urls(folder, ready.sources.num_shards)
        progress.finish(**summary.values())
        return summary


def _after_rejects(ready: Prepared, before: Identity | None, new: Sequence[Reject]) -> str:
    """What to do now, for people. A column that began to grow from outside in this run is first made what it was
    `before`: with the new shards it could neither be finished nor do without the rows that are wrong."""
    listed = f"'viewkit status {ready.dataset.path} --rejects' lists them; "
    if before is None or ready.stage.reads(ready.config):
        return f"{listed}correct the source, or allow more"
    if mirror_of(ready.folder) is not None or not ready.execution.is_here or ready.execution.part_of()[1] > 1:
        return (
            f"{listed}what was added stays, as others may be at work on it: run the same command again with the same "
            "source, and allow more"
        )
    with claim_lock(ready.dataset.path, ready.stage.writes):
        take_back(ready.folder / COLUMN, before)
    told = f"such as {'; '.join(reject.detail for reject in new)}; " if new else listed
    return f"{told}{ready.folder} is as it was before; correct the source, or allow more, and add again"


def drop_empty_claim(folder: Path) -> None:
    """Delete a claim that nothing was written under: of a run that was refused, or killed before its first shard.

    In a store it stays: another machine may have found it there, and be at work under it.
    """
    if mirror_of(folder) is not None:
        return
    with suppress(OSError):  # the folder may be gone, or unreadable: the error at hand says more
        if [path.name for path in folder.iterdir()] == [COLUMN]:
            (folder / COLUMN).unlink()
            folder.rmdir()


def _receipts(ready: Prepared, left: list[int], progress: Progress) -> Generator[Receipt, None, None]:
    def tell(news: int | str) -> None:
        if isinstance(news, str):
            progress.message(news)
        else:
            progress.advance(news)

    if not left:
        return
    if not ready.execution.is_here:
        yield from _receipts_on_ray(ready, left, tell)
        return
    workers = ready.execution.num_workers(len(left), ready.devices)
    if workers > 1:
        for _, receipt in run_shards(ready.work, left, workers, tell):
            yield receipt
        return
    with one_thread() if ready.stage.uses_torch else nullcontext():
        work = ready.work(0)
        for shard in left:
            yield work(shard, tell)


def _receipts_on_ray(ready: Prepared, left: list[int], tell: Report) -> Iterator[Receipt]:
    from viewkit.pipelines.engine.on_ray import run_on_ray

    claim, uses_torch = ready.folder / COLUMN, ready.stage.uses_torch
    limits = Limits(workers=ready.execution.workers)
    for _, receipt in run_on_ray(ready.work, left, claim, ready.devices[0], tell, limits, uses_torch=uses_torch):
        yield receipt


def _check_rejects(stage: MapStage[Any], summary: Summary, total: int, most: float) -> None:
    found = Counter({reason: count for reason, count in summary.rejected.items() if reason not in stage.by_choice})
    rejected = found.total()
    if rejected > most * total:
        reasons = ", ".join(f"{reason} {count}" for reason, count in found.most_common())
        raise TooManyRejects(
            f"{stage.name}: {rejected} of {total} rows rejected ({reasons}), more than --max-rejects {most:g} allows"
        )
