"""One shard of a map stage: what a worker process is given, and one row or reject for every input."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from viewkit.pipelines.engine.contract import MapStage, ShardFn, Silent
from viewkit.pipelines.engine.folder import run_of
from viewkit.pipelines.engine.workers import Report, Work
from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import Identity
from viewkit.shards.receipt import Receipt
from viewkit.shards.row import Reject, Row
from viewkit.shards.sources import Sources
from viewkit.shards.spans import span, spans_of
from viewkit.shards.spool import Spool
from viewkit.shards.writer import ShardWriter

REPORT_EVERY_S = 0.2


@dataclass(frozen=True)
class ShardWork:
    """Everything a worker process needs to do shards; pickled once into each."""

    stage: MapStage[Any]
    config: Any
    dataset: Dataset
    sources: Sources
    identity: Identity
    devices: list[str]

    def __call__(self, number: int) -> Work:
        device = self.devices[number % len(self.devices)]
        messages = Messages()
        run = run_of(self.stage, self.config, self.dataset, device, messages)
        with span("prepare"):
            transform = self.stage.prepare(self.config, run)
        keeps_rows = self.stage.keeps_rows(self.config)

        def work(shard: int, report: Report) -> Receipt:
            messages.report = report
            identity = self.identity.digest_for(shard)
            with span("shard", shard=shard), ExitStack() as stack:
                writer = stack.enter_context(ShardWriter(run.folder, shard, identity))
                spool = stack.enter_context(Spool(run.folder, shard, identity)) if keeps_rows else None
                due, rows = time.monotonic() + REPORT_EVERY_S, 0
                for outcome in outcomes(self.sources, shard, transform, spool.kept if spool else {}):
                    with span("write"):
                        writer.write(outcome)
                        if spool:
                            spool.append(outcome)
                    rows += 1
                    if time.monotonic() >= due:
                        report(rows)
                        due, rows = time.monotonic() + REPORT_EVERY_S, 0
                with span("finish"):
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
        for outcome in spans_of("read", sources.rows(shard)):
            if isinstance(outcome, Reject):
                early[outcome.key] = outcome
            elif outcome.key not in kept:
                yield outcome

    results = spans_of("rows", transform(readable()))
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
