"""The trainer's batches: a global shuffle, equal steps on every rank, exact resume in the middle of an epoch.

Receipts make every row reachable with one positioned read, so the order of an epoch is one permutation of all rows
(`shuffle`), known beforehand: batch s of rank k is a slice of it. Nothing has to be skipped over to resume, and nothing
is sampled from a global state.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Int64

from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError
from viewkit.shards.row import Row
from viewkit.shards.shuffle import Feistel, Listed, order_of
from viewkit.shards.sources import check_alignment

T = TypeVar("T")

MOST_THREADS = 16
PREFETCH = 3
"""Batches that are read and transformed before they are asked for."""


def default_threads() -> int:
    """One for every core that this process has, if it shares them evenly with the other ranks on its machine; 2 to 16.
    Decoders hold no lock of the interpreter, so threads do as well as processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_THREADS, max(2, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


class Loader(Generic[T]):
    """Batches of transformed rows.

    columns: the first gives the rows, the others are joined by key (``None`` where they rejected the row).
    transform: called in threads, once for every row; what it returns is what batches hold. It samples nothing itself
        that is not keyed by the row, so threads and order do not count.
    rank, world_size: of this process; every rank gets the same number of steps, the last short batch is dropped.
    threads: that read and transform; None: by the cores (`default_threads`). Batches do not depend on them.

    Raises `ConfigError` when there are fewer rows than one batch on all ranks needs.
    """

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str] = ("images",),
        *,
        batch_size: int,
        seed: int,
        transform: Callable[[Row], T],
        rank: int = 0,
        world_size: int = 1,
        threads: int | None = None,
    ) -> None:
        threads = default_threads() if threads is None else threads
        if batch_size < 1 or not 0 <= rank < world_size or threads < 1:
            raise ConfigError(
                f"loader: batch_size {batch_size}, rank {rank} of {world_size}, threads {threads}; "
                "batch_size and threads must be at least 1, and rank below world_size"
            )
        self.first, *self.others = [dataset.column(name) for name in columns]
        for other in self.others:
            check_alignment(self.first, other)
        self.num_rows = self.first.num_rows
        self.batch_size, self.seed, self.transform = batch_size, seed, transform
        self.rank, self.world_size, self.threads = rank, world_size, threads
        self.steps_per_epoch = self.num_rows // (batch_size * world_size)
        if self.steps_per_epoch == 0:
            raise ConfigError(
                f"{dataset.path}: {self.num_rows} rows are fewer than one batch needs "
                f"(batch size {batch_size} on {world_size} processes); choose a smaller batch size"
            )

    def with_batches_of(self, rows: int) -> "Loader[T]":
        """The same rows in batches of another size, at most this one's."""
        other = copy(self)
        other.batch_size, other.steps_per_epoch = rows, self.num_rows // (rows * self.world_size)
        return other

    def order(self, epoch: int) -> Int64[np.ndarray, "s b"]:
        """Row numbers of this rank's batches, step by step, in `epoch`."""
        order = order_of(self.num_rows, self.seed, epoch)
        return np.stack([self._batch(order, step) for step in range(self.steps_per_epoch)])

    def _batch(self, order: Listed | Feistel, step: int) -> Int64[np.ndarray, " b"]:
        first = (step * self.world_size + self.rank) * self.batch_size
        return order.rows(first, first + self.batch_size)

    def epoch(
        self, epoch: int, start_step: int = 0, *, transform: Callable[[Row], T] | None = None
    ) -> Iterator[list[T]]:
        """Batches of `epoch` from `start_step` on. transform: in place of the loader's, for this epoch."""
        transform = transform or self.transform
        order = order_of(self.num_rows, self.seed, epoch)
        steps = range(start_step, self.steps_per_epoch)
        with ThreadPoolExecutor(self.threads, thread_name_prefix="loader") as pool:
            waiting: deque[list[Future[list[T]]]] = deque()
            try:
                for place in range(len(steps) + PREFETCH):
                    if place < len(steps):
                        parts = self._parts(self._batch(order, steps[place]))
                        waiting.append([pool.submit(self._load, part, transform) for part in parts])
                    if place >= PREFETCH:
                        yield [item for part in waiting.popleft() for item in part.result()]
            finally:
                for batch in waiting:
                    for part in batch:
                        part.cancel()

    def read(self, index: int) -> Row:
        """Row number `index` with its joined columns."""
        key = self.first.index.keys[index]
        joined: dict[str, Mapping[str, bytes] | None] = {}
        for column in self.others:
            same = column.num_rows == self.num_rows  # then it has the very rows, in the same order
            place = index if same else column.place_of.get(key)
            joined[column.name] = None if place is None else column.fields(place)
        return Row(key, self.first.fields(index), joined)

    def _parts(self, batch: Int64[np.ndarray, " b"]) -> list[Int64[np.ndarray, " k"]]:
        return np.array_split(batch, min(len(batch), 2 * self.threads))

    def _load(self, indices: Int64[np.ndarray, " k"], transform: Callable[[Row], T]) -> list[T]:
        return [transform(self.read(int(index))) for index in indices]
