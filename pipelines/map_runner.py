"""Runs a map stage: the shards that are left, on one process or several, and the share of rejects."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from viewkit.pipelines.execution import Execution
from viewkit.pipelines.folder import claim, identity_of, remove_parts, run_of
from viewkit.pipelines.stage import MapStage, Progress, ShardFn, Silent
from viewkit.pipelines.summary import Summary
from viewkit.pipelines.workers import Report, Work, run_shards
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.files import make_folder
from viewkit.shards.lock import claim_lock, writer_lock
from viewkit.shards.receipt import Receipt, shard_name
from viewkit.shards.row import Reject, Row
from viewkit.shards.sources import Sources
from viewkit.shards.spool import Spool, remove_spools
from viewkit.shards.writer import ShardWriter

REPORT_EVERY_S = 0.2


def run_map(stage: MapStage[Any], config: Any, dataset: Dataset, execution: Execution, progress: Progress) -> Summary:
    inputs = stage.inputs(config, dataset)  # first: it says what is missing
    sources = stage.sources(config, dataset)
    identity = identity_of(stage, config, inputs, {"shards": sources.num_shards, "rows": sources.num_rows})
    devices = devices_for(stage, execution)
    folder = dataset.path / stage.writes
    part = execution.part_of()
    make_folder(folder)
    with writer_lock(dataset.path, stage.writes, part):
        with claim_lock(dataset.path, stage.writes):
            remove_parts(folder, ["column.json"])
            claim(folder / "column.json", identity)
        column = Column(folder)
        done, left = divide(column.whole_shards(), sources.num_shards, part)
        remove_spools(folder, done)
        summary = Summary(stage.name, folder)
        for shard in done:
            summary.add(column.receipt(shard))
        total = summary.seen + sum(len(sources.keys(shard)) for shard in left)
        _check_rejects(stage, summary, total, execution.max_rejects)
        for note in sources.notes:
            progress.message(note)
        progress.start(stage.name, total, "rows", summary.seen)
        make_work = ShardWork(stage, config, dataset, sources, identity.digest, devices)
        names = [shard_name(shard) for shard in left]
        remove_parts(folder, names)
        try:
            workers = execution.num_workers(len(left), devices)
            for receipt in _receipts(make_work, left, workers, progress):
                summary.add(receipt)
                summary.written += 1
                shards = f"{summary.shards}/{len(done) + len(left)}"
                progress.advance(0, shards=shards, rejects=summary.rejected.total())
                _check_rejects(stage, summary, total, execution.max_rejects)
        finally:
            remove_parts(folder, names)
        progress.finish(**summary.values())
        return summary


def devices_for(stage: MapStage[Any], execution: Execution) -> list[str]:
    return execution.devices() if stage.uses_torch else ["cpu"]


def divide(whole: list[int], num_shards: int, part: tuple[int, int]) -> tuple[list[int], list[int]]:
    """(done, left) of the shards that part i of n has to do: every n-th one."""
    index, count = part
    share = range(index, num_shards, count)
    finished = set(whole)
    return [shard for shard in share if shard in finished], [shard for shard in share if shard not in finished]


@dataclass(frozen=True)
class ShardWork:
    """Everything a worker process needs to do shards; pickled once into each."""

    stage: MapStage[Any]
    config: Any
    dataset: Dataset
    sources: Sources
    identity: str
    devices: list[str]

    def __call__(self, number: int) -> Work:
        device = self.devices[number % len(self.devices)]
        messages = Messages()
        run = run_of(self.stage, self.config, self.dataset, device, messages)
        transform = self.stage.prepare(self.config, run)
        keeps_rows = self.stage.keeps_rows(self.config)

        def work(shard: int, report: Report) -> Receipt:
            messages.report = report
            with ExitStack() as stack:
                writer = stack.enter_context(ShardWriter(run.folder, shard, self.identity))
                spool = stack.enter_context(Spool(run.folder, shard, self.identity)) if keeps_rows else None
                due, rows = time.monotonic() + REPORT_EVERY_S, 0
                for outcome in outcomes(self.sources, shard, transform, spool.kept if spool else {}):
                    writer.write(outcome)
                    if spool:
                        spool.append(outcome)
                    rows += 1
                    if time.monotonic() >= due:
                        report(rows)
                        due, rows = time.monotonic() + REPORT_EVERY_S, 0
                receipt = writer.finish()
                if spool:
                    spool.remove()
                report(rows)
                return receipt

        return work


class Messages(Silent):
    """Progress of a worker: of what a stage says there, only its messages go on to the person who watches."""

    def __init__(self) -> None:
        self.report: Report = lambda news: None

    def message(self, text: str) -> None:
        self.report(text)


def outcomes(
    sources: Sources, shard: int, transform: ShardFn, kept: Mapping[str, Row | Reject]
) -> Iterator[Row | Reject]:
    """One row or reject for every input of the shard, in order: the stage's, or the reject its source already is.

    kept: what an earlier, killed run has made already; the stage does not see these rows.
    """
    early: dict[str, Row | Reject] = dict(kept)

    def readable() -> Iterator[Row]:
        for outcome in sources.rows(shard):
            if isinstance(outcome, Reject):
                early[outcome.key] = outcome
            elif outcome.key not in kept:
                yield outcome

    results = transform(readable())
    pending: Row | Reject | None = None
    for key in sources.keys(shard):
        if pending is None:
            pending = next(results, None)
        if pending is not None and pending.key == key:
            yield pending
            pending = None
        elif key in early:
            yield early.pop(key)
        else:
            found = "nothing" if pending is None else pending.key
            raise AssertionError(f"a stage gives one row or reject for every key, in order: {key} was due, got {found}")
    if pending is not None or next(results, None) is not None or early:
        raise AssertionError("a stage gave more rows than it was given")


def _receipts(make_work: ShardWork, left: list[int], workers: int, progress: Progress) -> Iterator[Receipt]:
    def tell(news: int | str) -> None:
        if isinstance(news, str):
            progress.message(news)
        else:
            progress.advance(news)

    if not left:
        return
    if workers > 1:
        for _, receipt in run_shards(make_work, left, workers, tell):
            yield receipt
        return
    with one_torch_thread(make_work.stage):
        work = make_work(0)
        for shard in left:
            yield work(shard, tell)


@contextmanager
def one_torch_thread(stage: MapStage[Any]) -> Iterator[None]:
    """As in a worker process: sums must not depend on how many processes share the work."""
    if not stage.uses_torch:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_rejects(stage: MapStage[Any], summary: Summary, total: int, most: float) -> None:
    rejected = summary.rejected.total()
    if rejected > most * total:
        reasons = ", ".join(f"{reason} {count}" for reason, count in summary.rejected.most_common())
        raise DataError(
            f"{stage.name}: {rejected} of {total} rows rejected ({reasons}), more than --max-rejects {most:g} allows; "
            f"'viewkit status {summary.folder.parent} --rejects' lists them; correct the source, or allow more"
        )
