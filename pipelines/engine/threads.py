"""Threads that do not show in bytes: each number is computed by one thread, and several numbers side by side.

Sums that several threads share are added in another order than one thread's, so their last bits would depend on
OMP_NUM_THREADS, and with them the digests in identities. What is worth sharing is therefore cut into items that do not
know of each other, and every item keeps to one thread.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from viewkit.pipelines.engine.execution import MAX_WORKERS, cores
from viewkit.shards.spans import spanned

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2
"""Items a thread that are begun before the first one's result is taken."""


def thread_advice(threads: int, cores: int, load: float) -> str | None:
    """What to do where others keep the cores busy: threads that wait for each other then cost more than they give.

    threads: that torch computes on. load: average number of running processes in the last minute, ours not yet.
    Measured on two cores beside another job: 20 images/s on two threads, 90 on one. None: nothing to say.
    """
    free = max(1, cores - round(load))
    if threads <= free:
        return None
    return (
        f"other jobs keep these {cores} cores busy (load {load:.1f}) and torch computes on {threads} threads; "
        f"OMP_NUM_THREADS={free} is usually faster then"
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch, BLAS and OpenMP compute on one thread in this process; afterwards on as many as before."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], device: str, threads: int | None = None
) -> Iterator[Result]:
    """``map(function, items)``, in order, with the items on several threads, each computing on one.

    threads: by default one per core on a CPU (at most 8, each has an item in memory), and a single one for another
    device, which all would share. `items` is read in the caller's thread, a few items ahead. Raises what the function
    raised, at its item's turn.
    """
    count = threads or (min(cores(), MAX_WORKERS) if device == "cpu" else 1)
    if count == 1:
        yield from map(function, items)
        return
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(count, initializer=_compute_alone)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= AHEAD * count:
                yield _waited_for(waiting.popleft())
        while waiting:
            yield _waited_for(waiting.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def made_ahead(items: Iterable[Item]) -> Generator[Item, None, None]:
    """The items, in order; a thread makes the next one while this one is worked on. Raises what making it raised."""
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead", initializer=_compute_alone) as pool:
        pending: Future[Any] = pool.submit(next, iterator, end)
        while (item := _waited_for(pending)) is not end:
            pending = pool.submit(next, iterator, end)
            yield item


@spanned("wait")
def _waited_for(result: Future[Result]) -> Result:
    return result.result()


def _compute_alone() -> None:
    """The number of a thread's own OpenMP threads belongs to that thread."""
    import torch

    torch.set_num_threads(1)
