"""Batches of a fixed size that shrink when the device's memory runs out."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from viewkit.pipelines.engine.batches import padded
from viewkit.shards.errors import DataError

T = TypeVar("T")


class MicroBatches:
    """size: rows per call; halved for good whenever a call runs out of memory, which is reported through `say`.

    Kernels for another size differ in the last bits, so the output of smaller batches should be marked (`shrunk`).
    """

    def __init__(self, size: int, what: str, say: Callable[[str], None]) -> None:
        self.size, self.asked = size, size
        self.what, self.say = what, say

    @property
    def shrunk(self) -> bool:
        return self.size < self.asked

    def run(self, count: int, work: Callable[[list[int]], Sequence[T]]) -> list[T]:
        """`work` on all rows 0 ... count - 1. It gets exactly `size` row numbers, the last batch padded with repeats,
        and returns one result for each.

        Raises `DataError` when a single row is too much.
        """
        results: list[T] = []
        while len(results) < count:
            rows = list(range(len(results), min(len(results) + self.size, count)))
            made = self._attempt(padded(rows, self.size), work)
            if made is None:
                self._halve()
            else:
                results += made[: len(rows)]
        return results

    @staticmethod
    def _attempt(rows: list[int], work: Callable[[list[int]], Sequence[T]]) -> Sequence[T] | None:
        """None when memory ran out. A frame of its own: the error holds what was allocated as long as it lives."""
        try:
            return work(rows)
        except torch.OutOfMemoryError:
            return None

    def _halve(self) -> None:
        if self.size == 1:
            raise DataError(
                f"{self.what}: the device's memory is too small for a single image; use --precision bf16, a smaller "
                "--render-px, a free device or one with more memory"
            )
        self.size //= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.say(f"{self.what}: out of memory; going on with batches of {self.size} instead of {2 * self.size}")
