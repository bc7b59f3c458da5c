"""The index of a column's rows as a file, ``DATASET/.index/COLUMN.index``: made where it pays, kept while it is true.

It is true while every receipt has the size and time of change that it had. A receipt that had just been written could
change again within one tick of the clock, so an index is only kept once all receipts are some seconds old.
"""

import io
import mmap
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path

from viewkit.shards.errors import DataError
from viewkit.shards.files import open_own, part_path
from viewkit.shards.index import RowIndex

LEAST_BYTES = 1 << 20
"""Receipts that are smaller in all are parsed as quickly as a file is opened."""
SETTLED_NS = 2_000_000_000
Stamp = tuple[int, int]


def index_path(column: Path) -> Path:
    return column.parent / ".index" / f"{column.name}.index"


def stamps_of(receipts: Iterable[Path]) -> list[Stamp]:
    """Size and time of change (ns) of every file; `FileNotFoundError` for one that is not there."""
    facts = (os.stat(path) for path in receipts)
    return [(each.st_size, each.st_mtime_ns) for each in facts]


def read_index(column: Path, identity: str, stamps: list[Stamp]) -> RowIndex | None:
    """The index that is there, if it was made from these receipts of this identity; None of one that is not true, and
    of one that is damaged: it says nothing that the receipts do not say."""
    path = index_path(column)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        index = RowIndex(memoryview(mapped), path)
    except (OSError, ValueError, DataError):
        return None
    if index.about.get("identity") != identity or index.num_shards != len(stamps):
        return None
    made_from = list(zip(index.table["receipt_bytes"].tolist(), index.table["receipt_ns"].tolist(), strict=True))
    return index if made_from == stamps else None


def make_index(column: Path, stamps: list[Stamp], write: Callable[[BufferedIOBase], None]) -> RowIndex:
    """What `write` writes, as a file where that pays and can be; else in memory."""
    newest = max((changed for _, changed in stamps), default=0)
    if sum(size for size, _ in stamps) >= LEAST_BYTES and time.time_ns() - newest >= SETTLED_NS:
        with suppress(OSError):  # a dataset that cannot be written to, or a full disk: memory does as well
            return _written(index_path(column), write)
    stream = io.BytesIO()
    write(stream)
    return RowIndex(memoryview(stream.getvalue()))


def _written(path: Path, write: Callable[[BufferedIOBase], None]) -> RowIndex:
    path.parent.mkdir(exist_ok=True)
    part = part_path(path)
    try:
        with io.BufferedWriter(io.FileIO(part, "xb", opener=open_own), 1 << 20) as file:
            write(file)
        os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    with open(path, "rb") as file:
        return RowIndex(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), path)
