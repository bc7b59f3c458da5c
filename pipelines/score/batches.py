"""Cutting a stream of rows into lists."""

from collections.abc import Iterable, Iterator
from itertools import islice

from viewkit.shards.row import Row


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Lists of `size` rows; the last may be shorter."""
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch
