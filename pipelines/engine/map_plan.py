"""What a map stage has left to do, and how long that may take, measured on a few rows; nothing is written."""

import time
from contextlib import nullcontext
from itertools import islice
from typing import Any

from viewkit.pipelines.engine.contract import MapStage, Silent
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.folder import refuse_another, run_of
from viewkit.pipelines.engine.map import Prepared, on_cluster, prepare_map
from viewkit.pipelines.engine.threads import one_thread
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import COLUMN
from viewkit.shards.row import Row
from viewkit.shards.tar import row_bytes

PROBE_ROWS = 32
"""Rows that a dry run processes to measure the rate."""


def plan_map(stage: MapStage[Any], config: Any, dataset: Dataset, execution: Execution) -> dict[str, Any]:
    """What is left, and its time and bytes carried over from a few rows really processed; writes nothing."""
    with on_cluster(execution):
        return _plan_map(stage, config, dataset, execution)


def _plan_map(stage: MapStage[Any], config: Any, dataset: Dataset, execution: Execution) -> dict[str, Any]:
    ready = prepare_map(stage, config, dataset, execution)
    complete: list[int] = []
    if (ready.folder / COLUMN).exists():
        column = Column(ready.folder)
        if complete := column.complete_shards():
            refuse_another(stage, dataset, ready.folder / COLUMN, ready.identity)
    _, left = ready.divide(complete)
    rows, workers = ready.rows_in(left), _num_workers(ready, len(left))
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
    if left and not execution.is_here and ready.devices != execution.devices()[:1]:
        plan["notes"] = [f"no estimate: the rate would be measured on {ready.devices[0]}, which this machine lacks"]
    elif left:
        measured = _measure(ready, left[0])
        plan["measured_rows"] = int(measured["rows"])
        plan["estimated_s"] = round(measured["start_s"] + measured["row_s"] * rows / workers, 1)
        plan["estimated_bytes"] = round(measured["row_bytes"] * rows)
    return plan


def _num_workers(ready: Prepared, shards: int) -> int:
    if ready.execution.is_here:
        return ready.execution.num_workers(shards, ready.devices)
    from viewkit.pipelines.engine.ray_cluster import seats

    return max(1, min(sum(seats(ready.devices[0]).values()), ready.execution.workers or shards, shards))


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
