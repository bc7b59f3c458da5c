"""Shards on spawned processes: hand one out at a time, notice a lost worker, stop when the parent is gone.

The receipt on disk is the truth, so a lost worker or a shard that is done twice costs time and never correctness. Parts
of a fit go the same way; of these the result that came back is the truth.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from types import TracebackType
from typing import Any

from viewkit.pipelines.engine.memory import OUT_OF_MEMORY, is_out_of_memory
from viewkit.pipelines.engine.profile import Profiling
from viewkit.pipelines.engine.units import SHARDS, Unit, Words, shard_units
from viewkit.shards import spans
from viewkit.shards.errors import DataError, ViewkitError

PATIENCE_S = 5.0
"""How long a worker may take to end when it is told to."""
TRIES = 2
"""How often a shard may lose its worker before the job gives up on it."""

Report = Callable[[int | str], None]
"""Called with the number of rows done since the last call, or with a line for the person who watches."""

Work = Callable[[Any, Report], Any]
"""Does one shard, or another unit's task; returns what the parent should know about it (picklable)."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    unit: Unit | None = None


def run_shards(
    make_work: Callable[[int], Work], shards: Sequence[int], workers: int, report: Report, words: Words = SHARDS
) -> Iterator[tuple[int, Any]]:
    """Do every shard; yields (shard, result) as they are done. The arguments are those of `Workers`."""
    with Workers(make_work, workers, report, words) as crew:
        yield from crew.do(shard_units(shards))


class Workers:
    """Processes that keep what they have loaded for all that is to be done.

    make_work: picklable; called once in every process with the worker's number, returns the function that does shards.
    words: what a shard is called in errors.
    """

    def __init__(self, make_work: Callable[[int], Work], workers: int, report: Report, words: Words = SHARDS) -> None:
        self.make_work, self.workers, self.report, self.words = make_work, workers, report, words
        self._crew: list[_Worker] = []

    def __enter__(self) -> "Workers":
        return self

    def do(self, units: Sequence[Unit]) -> Iterator[tuple[int, Any]]:
        """Do every unit; yields (its number, result) as they are done.

        Raises what a worker raised (a `ViewkitError` as itself, anything else with its traceback), and `DataError` when
        a unit's worker died twice.
        """
        crew, left = self._crew, list(reversed(units))
        lost = dict.fromkeys((unit.number for unit in units), 0)
        for number in range(len(crew), min(self.workers, len(units))):
            crew.append(_start(self.make_work, number))
        while left or any(worker.unit is not None for worker in crew):
            for number, worker in enumerate(crew):
                if worker.unit is None and left and not _hand_out(worker, left):
                    crew[number] = _replace(self.make_work, worker, number)
            busy = {worker.connection: worker for worker in crew if worker.unit is not None}
            with spans.span("wait"):
                ready = wait(list(busy))
            for connection in ready:
                worker = busy[connection]  # type: ignore[index]
                assert worker.unit is not None
                try:
                    kind, value = worker.connection.recv()
                except (EOFError, OSError):  # it died, perhaps in the middle of a message
                    number = crew.index(worker)
                    lost[worker.unit.number] += 1
                    left.append(worker.unit)
                    crew[number] = _replace(self.make_work, worker, number)
                    _give_up_on(worker, lost, self.words)
                    continue
                if kind == "news":
                    self.report(value)
                elif kind == "spans":
                    _keep(value)
                elif kind == "done":
                    unit, worker.unit = worker.unit, None
                    yield unit.number, value
                else:
                    raise value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._crew:
            worker.process.terminate()
        for worker in self._crew:
            worker.process.join(PATIENCE_S)
            if worker.process.is_alive():  # stopped, or held up in the kernel: it would never see the signal
                worker.process.kill()
                worker.process.join(PATIENCE_S)


def _start(make_work: Callable[[int], Work], number: int) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    made = bytes(ForkingPickler.dumps(make_work))  # unpickled by `_serve`, which can say what went wrong in an import
    profiling = Profiling.of_this_process()
    process = context.Process(target=_serve, args=(made, number, theirs, profiling), daemon=True)
    with _one_thread_each(), _safe_path(), _sigint_blocked():
        process.start()
    theirs.close()
    return _Worker(process, ours)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Processes started inside do not look for modules in the working folder, where images lie: a file called
    ``pickle.py`` among them would be imported, and run, by a new interpreter before anything else."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Processes started inside never see a terminal's Ctrl-C, not even while they import: the parent decides."""
    resource_tracker.ensure_running()  # the first process would start it, and starting it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hand_out(worker: _Worker, left: list[Unit]) -> bool:
    """Give the worker its next unit; False when it is no longer there to take it."""
    try:
        worker.connection.send(left[-1].task)
    except OSError:
        return False
    worker.unit = left.pop()
    return True


def _replace(make_work: Callable[[int], Work], worker: _Worker, number: int) -> _Worker:
    worker.process.join()
    worker.connection.close()
    return _start(make_work, number)


def _give_up_on(worker: _Worker, lost: dict[int, int], words: Words) -> None:
    if worker.unit is not None and lost[worker.unit.number] >= TRIES:
        raise DataError(
            f"{words.named(worker.unit.number)}: its worker process died {TRIES} times "
            f"(last exit code {worker.process.exitcode}), probably for want of memory; "
            f"run the same command with fewer processes{words.rest}"
        )


def _keep(recorded: spans.Recorded) -> None:
    """Add a worker's spans to this process's, which go on being recorded."""
    recorder = spans.recorder()
    if recorder is not None:
        recorder.recorded.merge(recorded)


def _serve(made: bytes, number: int, connection: Connection, profiling: Profiling | None) -> None:
    try:
        threading.Thread(target=_leave_with_parent, daemon=True).start()
        recorder = None if profiling is None else profiling.start()
        with spans.span("load"):
            make_work: Callable[[int], Work] = ForkingPickler.loads(made)
            work = make_work(number)
        while True:
            with spans.span("wait"):
                task = connection.recv()
            done = work(task, lambda news: connection.send(("news", news)))
            if recorder is not None:
                connection.send(("spans", recorder.take()))
            connection.send(("done", done))
    except EOFError:
        return
    except Exception as error:  # noqa: BLE001 whatever it is, the parent raises it
        connection.send(("error", as_told(error, "in a worker process")))


def as_told(error: Exception, where: str) -> Exception:
    """What the parent raises for it: a `ViewkitError` as itself, anything else with its traceback."""
    if isinstance(error, ViewkitError):
        return error
    if is_out_of_memory(error):
        return DataError(f"{where}: {OUT_OF_MEMORY}")
    return RuntimeError(f"{where}:\n{''.join(traceback.format_exception(error))}")


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextmanager
def _one_thread_each() -> Iterator[None]:
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
