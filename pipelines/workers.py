"""Shards on spawned processes: hand one out at a time, notice a lost worker, stop when the parent is gone.

The receipt on disk is the truth, so a lost worker or a shard that is done twice costs time and never correctness.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from viewkit.shards.errors import DataError, ViewkitError
from viewkit.shards.receipt import shard_name

TRIES = 2
"""How often a shard may lose its worker before the job gives up on it."""

Report = Callable[[int], None]
"""Called with the number of rows done since the last call."""

Work = Callable[[int, Report], Any]
"""Does one shard; returns what the parent should know about it (picklable)."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    shard: int | None = None


def run_shards(
    make_work: Callable[[int], Work], shards: Sequence[int], workers: int, report: Report
) -> Iterator[tuple[int, Any]]:
    """Do every shard; yields (shard, result) as they are done.

    make_work: picklable; called once in every process with the worker's number, returns the function that does shards.
    Raises what a worker raised (a `ViewkitError` as itself, anything else with its traceback), and `DataError` when a
    shard's worker died twice.
    """
    waiting = list(reversed(shards))
    tries = dict.fromkeys(shards, 0)
    crew = [_start(make_work, number) for number in range(workers)]
    try:
        for worker in crew:
            _hand_out(worker, waiting)
        while any(worker.shard is not None for worker in crew):
            busy = {worker.connection: worker for worker in crew if worker.shard is not None}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                try:
                    kind, value = worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    crew[crew.index(worker)] = _replace(make_work, worker, tries, waiting, crew.index(worker))
                    continue
                if kind == "rows":
                    report(value)
                elif kind == "done":
                    assert worker.shard is not None
                    shard = worker.shard
                    _hand_out(worker, waiting)
                    yield shard, value
                else:
                    raise value
    finally:
        for worker in crew:
            worker.process.terminate()
        for worker in crew:
            worker.process.join()


def _start(make_work: Callable[[int], Work], number: int) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with one_thread():
        process = context.Process(target=_serve, args=(make_work, number, theirs), daemon=True)
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _hand_out(worker: _Worker, waiting: list[int]) -> None:
    worker.shard = waiting.pop() if waiting else None
    if worker.shard is not None:
        worker.connection.send(worker.shard)


def _replace(
    make_work: Callable[[int], Work], lost: _Worker, tries: dict[int, int], waiting: list[int], number: int
) -> _Worker:
    shard = lost.shard
    assert shard is not None
    lost.process.join()
    tries[shard] += 1
    if tries[shard] >= TRIES:
        raise DataError(
            f"shard {shard_name(shard)}: its worker process died {TRIES} times "
            f"(last exit code {lost.process.exitcode}), probably for want of memory; "
            "run the same command with fewer --workers, finished shards are kept"
        )
    waiting.append(shard)
    worker = _start(make_work, number)
    _hand_out(worker, waiting)
    return worker


def _serve(make_work: Callable[[int], Work], number: int, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; a terminal's Ctrl-C reaches both
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        work = make_work(number)
        while True:
            shard = connection.recv()
            connection.send(("done", work(shard, lambda rows: connection.send(("rows", rows)))))
    except EOFError:
        return
    except ViewkitError as error:
        connection.send(("error", error))
    except BaseException:
        connection.send(("error", RuntimeError(f"in a worker process:\n{traceback.format_exc()}")))
        raise


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextmanager
def one_thread() -> Iterator[None]:
    """Processes started inside compute on one thread each: sums then do not depend on the number of workers."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
