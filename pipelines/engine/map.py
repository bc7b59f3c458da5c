"""Runs a map stage: the shards that are left, on one process or several, and the share of rejects."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from viewkit.pipelines.engine.contract import MapStage, Progress, Silent
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.folder import (
    claim,
    identity_of,
    refuse_another,
    remove_parts,
    run_of,
    tell_of_other_software,
)
from viewkit.pipelines.engine.shard import ShardWork
from viewkit.pipelines.engine.summary import Summary
from viewkit.pipelines.engine.threads import one_thread
from viewkit.pipelines.engine.workers import run_shards
from viewkit.shards.column import Column, ShardFacts
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, ViewkitError
from viewkit.shards.files import make_folder
from viewkit.shards.identity import Identity
from viewkit.shards.lock import claim_lock, writer_lock
from viewkit.shards.receipt import Receipt, shard_name
from viewkit.shards.row import Row
from viewkit.shards.sources import Sources
from viewkit.shards.spans import span
from viewkit.shards.spool import remove_spools
from viewkit.shards.stores.mounts import drop_claim, list_urls
from viewkit.shards.tar import row_bytes
from viewkit.shards.writer import settle

PROBE_ROWS = 32
"""Rows that a dry run processes to measure the rate."""


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
    inputs = stage.inputs(config, dataset)  # first: it says what is missing
    devices = execution.devices() if stage.uses_torch else ["cpu"]
    config = stage.for_images(stage.on_device(config, devices[0]), dataset, devices[0])
    sources = stage.sources(config, dataset)
    identity = identity_of(stage, config, inputs, {"shards": sources.num_shards, "rows": sources.num_rows})
    identity = as_there(stage, config, dataset, identity)
    return Prepared(stage, config, dataset, execution, sources, identity, devices)


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
    with span("open"):
        ready = prepare_map(stage, config, dataset, execution)
    folder = ready.folder
    make_folder(folder)
    with writer_lock(dataset.path, stage.writes, execution.part_of()):
        with claim_lock(dataset.path, stage.writes), span("claim"):
            remove_parts(folder, ["column.json"])
            if execution.part_of()[1] == 1:
                drop_empty_claim(folder)
                make_folder(folder)
            claim(stage, dataset, folder / "column.json", ready.identity)
        column = Column(folder)
        done, left = ready.divide(column.complete_shards())
        remove_parts(folder, [shard_name(shard) for shard in done])
        remove_spools(folder, done)
        _settle(folder, done, ready.identity)
        summary = Summary(stage.name, folder)
        for facts in column.facts(done):
            summary.add(facts)
        total = summary.seen + ready.rows_in(left)
        _check_rejects(stage, summary, total, execution.max_rejects)
        if done and left:
            tell_of_other_software(folder / "column.json", None, progress)
        if left and ready.identity.earlier and min(left) >= (before := ready.identity.earlier[-1].plan["shards"]):
            progress.message(f"{stage.name}: {stage.writes} has {before} shards already; only the new images are done")
        for note in ready.sources.notes:
            progress.message(note)
        progress.start(stage.name, total, "rows", summary.seen)
        names = [shard_name(shard) for shard in left]
        remove_parts(folder, names)
        try:
            for receipt in _receipts(ready, left, progress):
                summary.add(ShardFacts.of(receipt))
                summary.written += 1
                shards = f"{summary.shards}/{len(done) + len(left)}"
                progress.advance(0, shards=shards, rejects=summary.rejected.total())
                _check_rejects(stage, summary, total, execution.max_rejects)
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


def drop_empty_claim(folder: Path) -> None:
    """Delete a claim that nothing was written under: of a run that was refused, or killed before its first shard."""
    with suppress(OSError):  # the folder may be gone, or unreadable: the error at hand says more
        if [path.name for path in folder.iterdir()] == ["column.json"]:
            drop_claim(folder / "column.json")
            (folder / "column.json").unlink()
            folder.rmdir()


def _receipts(ready: Prepared, left: list[int], progress: Progress) -> Iterator[Receipt]:
    def tell(news: int | str) -> None:
        if isinstance(news, str):
            progress.message(news)
        else:
            progress.advance(news)

    if not left:
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


def _check_rejects(stage: MapStage[Any], summary: Summary, total: int, most: float) -> None:
    found = Counter({reason: count for reason, count in summary.rejected.items() if reason not in stage.by_choice})
    rejected = found.total()
    if rejected > most * total:
        reasons = ", ".join(f"{reason} {count}" for reason, count in found.most_common())
        raise DataError(
            f"{stage.name}: {rejected} of {total} rows rejected ({reasons}), more than --max-rejects {most:g} allows; "
            f"'viewkit status {summary.folder.parent} --rejects' lists them; correct the source, or allow more"
        )


def plan_map(stage: MapStage[Any], config: Any, dataset: Dataset, execution: Execution) -> dict[str, Any]:
    """What is left, and its time and bytes carried over from a few rows really processed; writes nothing."""
    ready = prepare_map(stage, config, dataset, execution)
    complete: list[int] = []
    if (ready.folder / "column.json").exists():
        column = Column(ready.folder)
        if complete := column.complete_shards():
            refuse_another(stage, dataset, ready.folder / "column.json", ready.identity)
    _, left = ready.divide(complete)
    rows, workers = ready.rows_in(left), execution.num_workers(len(left), ready.devices)
    plan: dict[str, Any] = {
        "stage": stage.name,
        "reads": sorted(ready.identity.inputs),
        "shards": ready.sources.num_shards,
        "rows": ready.sources.num_rows,
        "shards_left": len(left),
        "rows_left": rows,
        "workers": workers,
        "devices": ready.devices,
    }
    if left:
        measured = _measure(ready, left[0])
        plan["measured_rows"] = int(measured["rows"])
        plan["estimated_s"] = round(measured["start_s"] + measured["row_s"] * rows / workers, 1)
        plan["estimated_bytes"] = round(measured["row_bytes"] * rows)
    return plan


def _measure(ready: Prepared, shard: int) -> dict[str, float]:
    """Seconds to start, seconds and bytes per row, over the first rows of one shard."""
    with one_thread() if ready.stage.uses_torch else nullcontext():
        begin = time.monotonic()
        run = run_of(ready.stage, ready.config, ready.dataset, ready.devices[0], Silent())
        transform = ready.stage.prepare(ready.config, run)
        loaded = time.monotonic()
        readable = [row for row in islice(ready.sources.rows(shard), PROBE_ROWS) if isinstance(row, Row)]
        results = list(transform(iter(readable)))
        end = time.monotonic()
    size = sum(len(row_bytes(each.key, each.fields)[0]) for each in results if isinstance(each, Row))
    rows = max(len(results), 1)
    return {
        "rows": float(len(results)),
        "start_s": loaded - begin,
        "row_s": (end - loaded) / rows,
        "row_bytes": size / rows,
    }
