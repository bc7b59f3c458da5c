"""Batches that are always full, so that an image's result does not depend on how many there are."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def padded(items: Sequence[T], size: int) -> list[T]:
    """`items`, repeated from the start up to a multiple of `size`; empty stays empty.

    Results of neighbours are independent, but kernels for another batch size differ in the last bits.
    """
    missing = -len(items) % size if items else 0
    return [*items, *(items[i % len(items)] for i in range(missing))]


def full_batches(items: Sequence[T], size: int) -> Iterator[tuple[list[T], int]]:
    """Batches of exactly `size` items, each with how many of them are not padding."""
    for start in range(0, len(items), size):
        part = items[start : start + size]
        yield padded(part, size), len(part)
