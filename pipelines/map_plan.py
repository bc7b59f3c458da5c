"""The dry run of a map stage: what is left, and its time and bytes carried over from a few rows really processed."""

import time
from itertools import islice
from typing import Any

from viewkit.pipelines.execution import Execution
from viewkit.pipelines.folder import identity_of, run_of
from viewkit.pipelines.map_runner import devices_for, divide, one_torch_thread
from viewkit.pipelines.stage import MapStage, Silent
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import refuse_other
from viewkit.shards.row import Row
from viewkit.shards.sources import Sources
from viewkit.shards.tar import row_bytes

PROBE_ROWS = 32
"""Rows that are processed to measure the rate."""


def plan_map(stage: MapStage[Any], config: Any, dataset: Dataset, execution: Execution) -> dict[str, Any]:
    inputs = stage.inputs(config, dataset)  # first: it says what is missing
    sources = stage.sources(config, dataset)
    identity = identity_of(stage, config, inputs, {"shards": sources.num_shards, "rows": sources.num_rows})
    devices = devices_for(stage, execution)
    folder = dataset.path / stage.writes
    whole: list[int] = []
    if (folder / "column.json").exists():
        column = Column(folder)
        refuse_other(folder / "column.json", column.identity, identity)
        whole = column.whole_shards()
    _, left = divide(whole, sources.num_shards, execution.part_of())
    rows = sum(len(sources.keys(shard)) for shard in left)
    workers = execution.num_workers(len(left), devices)
    plan: dict[str, Any] = {
        "stage": stage.name,
        "reads": sorted(identity.inputs),
        "shards": sources.num_shards,
        "rows": sources.num_rows,
        "shards_left": len(left),
        "rows_left": rows,
        "workers": workers,
        "devices": devices,
    }
    if left:
        per_row = _measure(stage, config, dataset, sources, left[0], devices[0])
        plan["measured_rows"] = int(per_row["rows"])
        plan["estimated_s"] = round(per_row["start_s"] + per_row["row_s"] * rows / workers, 1)
        plan["estimated_bytes"] = round(per_row["row_bytes"] * rows)
    return plan


def _measure(
    stage: MapStage[Any], config: Any, dataset: Dataset, sources: Sources, shard: int, device: str
) -> dict[str, float]:
    """Seconds to start, seconds and bytes a row, over the first rows of one shard."""
    with one_torch_thread(stage):
        begin = time.monotonic()
        transform = stage.prepare(config, run_of(stage, config, dataset, device, Silent()))
        loaded = time.monotonic()
        readable = [row for row in islice(sources.rows(shard), PROBE_ROWS) if isinstance(row, Row)]
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
