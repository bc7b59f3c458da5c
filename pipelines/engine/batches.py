"""Batches of a fixed size, so that an image's result does not depend on how many there are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the last may be shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def batches_of(items: Iterable[T], counts: Callable[[T], bool], size: int) -> Iterator[list[T]]:
    """Lists, in order, with `size` items that count, and those before them that do not; the last may have fewer."""
    batch: list[T] = []
    found = 0
    for item in items:
        batch.append(item)
        found += counts(item)
        if found == size:
            yield batch
            batch, found = [], 0
    if batch:
        yield batch


def padded(items: Sequence[T], size: int) -> list[T]:
    """`items`, repeated from the start up to a multiple of `size`; empty stays empty.

    Results of neighbours are independent, but kernels for another batch size differ in the last bits.
    """
    missing = -len(items) % size if items else 0
    return [*items, *(items[i % len(items)] for i in range(missing))]
