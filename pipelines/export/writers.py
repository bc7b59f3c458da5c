"""Tables as CSV, JSON lines and parquet, a batch of rows in memory at a time."""

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from viewkit.pipelines.engine.batches import batches
from viewkit.shards.errors import ConfigError

BATCH = 10_000
"""Rows of a row group of a parquet file."""

Kinds = Mapping[str, type]
Records = Iterable[Mapping[str, Any]]


def write_csv(path: Path, kinds: Kinds, records: Records) -> int:
    """The number of rows. An unknown value is an empty cell."""
    count = 0
    with open(path, "x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(kinds)
        for count, record in enumerate(records, 1):  # noqa: B007
            writer.writerow([record[name] for name in kinds])
    return count


def write_jsonl(path: Path, kinds: Kinds, records: Records) -> int:
    """The number of rows. An unknown value is null."""
    count = 0
    with open(path, "x", encoding="utf-8") as file:
        for count, record in enumerate(records, 1):  # noqa: B007
            file.write(json.dumps({name: record[name] for name in kinds}, allow_nan=False) + "\n")
    return count


def write_parquet(path: Path, kinds: Kinds, records: Records) -> int:
    """The number of rows. `ConfigError` without pyarrow."""
    arrow, parquet = import_arrow()
    schema = arrow.schema([(name, _arrow_type(arrow, kind)) for name, kind in kinds.items()])
    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches(records, BATCH):
            writer.write_table(arrow.Table.from_pylist(batch, schema))
            count += len(batch)
    return count


def _arrow_type(arrow: Any, kind: type) -> Any:
    return {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bytes: arrow.binary()}[kind]


def import_arrow() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet; `ConfigError` where they are not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            "export: parquet needs pyarrow, which is not installed; pip install '.[parquet]', where viewkit's source "
            "is, or choose .csv or .jsonl"
        ) from error
    return pyarrow, parquet


TABLES = {".csv": write_csv, ".jsonl": write_jsonl, ".parquet": write_parquet}
"""How a table is written, by the ending of the file."""
