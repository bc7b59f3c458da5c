"""Batches of a fixed size that shrink when the device's memory runs out."""

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import torch

from viewkit.pipelines.engine.batches import padded
from viewkit.shards.errors import DataError
from viewkit.shards.spans import spanned

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

    def run(self, count: int, work: Callable[[list[int]], Sequence[T]], *, alone: bool = False) -> list[T]:
        """`work` on all rows 0 ... count - 1. It gets exactly `size` row numbers, the last batch padded with repeats,
        and returns one result for each.

        alone: one row at a time, so that few rows cost no whole batch and none depends on how many there are.
        Raises `DataError` when a single row is too much.
        """
        if alone:
            return [result for row in range(count) for result in self._alone(row, work)]
        results: list[T] = []
        while len(results) < count:
            rows = list(range(len(results), min(len(results) + self.size, count)))
            made = self._attempt(padded(rows, self.size), work)
            if made is None:
                self._halve()
            else:
                results += made[: len(rows)]
        return results

    def _alone(self, row: int, work: Callable[[list[int]], Sequence[T]]) -> Sequence[T]:
        made = self._attempt([row], work)
        if made is None:
            self._refuse()
        return made

    @staticmethod
    @spanned("generate", is_unit=True)
    def _attempt(rows: list[int], work: Callable[[list[int]], Sequence[T]]) -> Sequence[T] | None:
        """None when memory ran out. A frame of its own: the error holds what was allocated as long as it lives."""
        try:
            return work(rows)
        except torch.OutOfMemoryError:
            return None

    def _refuse(self) -> NoReturn:
        raise DataError(
            f"{self.what}: the device's memory is too small for a single image; use --precision bf16, a smaller "
            "--render-px, a free device or one with more memory"
        )

    def _halve(self) -> None:
        if self.size == 1:
            self._refuse()
        self.size //= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.say(f"{self.what}: out of memory; going on with batches of {self.size} instead of {2 * self.size}")
