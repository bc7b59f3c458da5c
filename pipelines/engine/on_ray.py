"""Shards on a Ray cluster: `workers.Workers` over actors on many machines. Ray is imported when it is asked for.

Ray's own retries are off: a lost actor is killed and another one started, and only one that has answered is given work.
What is to be done is decided by `schedule.Schedule`. Of a column shard numbers and receipts are all that travels; the
parts of a fit and what they found travel whole.
"""

import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import TracebackType
from typing import Any

from viewkit.pipelines.engine.ray_cluster import offered, seats, why_lost
from viewkit.pipelines.engine.schedule import Give, Limits, Schedule, Start
from viewkit.pipelines.engine.shard_actor import SEEN_S, News, Orders, ShardActor
from viewkit.pipelines.engine.units import SHARDS, Unit, Words, shard_units
from viewkit.pipelines.engine.workers import PATIENCE_S, Report, Work
from viewkit.shards.errors import DataError
from viewkit.shards.files import read_file
from viewkit.shards.stores.mounts import mirror_of


@dataclass(frozen=True, kw_only=True)
class Pace:
    """look_s: how often the cluster's nodes are looked at. news_s: how long an actor waits for something to tell.
    seen_s: how long one waits for the driver's folder to appear."""

    look_s: float = 60.0
    news_s: float = 1.0
    seen_s: float = SEEN_S


PACE = Pace()


def run_on_ray(
    make_work: Callable[[int], Work],
    shards: Sequence[int],
    claim: Path,
    device: str,
    report: Report,
    limits: Limits,
    *,
    uses_torch: bool = True,
    pace: Pace | None = None,
) -> Iterator[tuple[int, Any]]:
    """Do every shard on the cluster that this process is connected to; yields (shard, result) as they are done.

    The arguments are those of `Actors`, which says what is raised.
    """
    with Actors(make_work, claim, device, report, limits, uses_torch=uses_torch, pace=pace) as crew:
        yield from crew.do(shard_units(shards))


class Actors:
    """Actors that keep what they have loaded for all that is to be done on the cluster.

    make_work, words: as `workers.Workers` takes them. claim: a file that every node must see as this one does. device:
    "cpu" for an actor per CPU, else one per GPU. `DataError` when no node has what is asked for.
    """

    def __init__(
        self,
        make_work: Callable[[int], Work],
        claim: Path,
        device: str,
        report: Report,
        limits: Limits,
        *,
        uses_torch: bool = True,
        pace: Pace | None = None,
        words: Words = SHARDS,
    ) -> None:
        self.pace, self.report, self.device = pace or PACE, report, device
        if not seats(device):
            raise DataError(
                f"no node of the cluster has a {'CPU' if device == 'cpu' else 'GPU'} to offer ({offered()}); "
                "add one with 'ray start --address', and run the same command again"
            )
        orders = Orders(
            made=bytes(ForkingPickler.dumps(make_work)),
            number=0,
            claim=str(claim.absolute()),
            sha256=sha256(read_file(claim)).hexdigest(),
            folder=str(Path.cwd()),
            uses_torch=uses_torch,
            seen_s=self.pace.seen_s,
            mirror=None if (mirror := mirror_of(claim)) is None else bytes(ForkingPickler.dumps(mirror)),
        )
        self._schedule = Schedule([], limits, words)
        self._crew, self._rows = _Crew(orders, device, self.pace.news_s), _Rows()
        self._look_at = 0.0

    def __enter__(self) -> "Actors":
        return self

    def do(self, units: Sequence[Unit]) -> Iterator[tuple[int, Any]]:
        """Do every unit; yields (its number, result) as they are done. No number comes twice in a job.

        Raises what a worker raised, and `DataError` when a unit's workers died too often, or nobody is left.
        """
        schedule, crew = self._schedule, self._crew
        tasks = {unit.number: unit for unit in units}
        schedule.more(list(tasks))
        while schedule.undone:
            if (now := time.monotonic()) >= self._look_at:
                self._look_at = now + self.pace.look_s
                schedule.nodes(seats(self.device))
            for action in schedule.actions(now):
                if isinstance(action, Give):
                    self._rows.begin(action.worker)
                    crew.ask(action.worker, tasks[action.shard])
                elif isinstance(action, Start):
                    crew.start(action.worker, action.node)
                else:
                    crew.kill(action.worker)
            for worker, answer in crew.answers(min(self._look_at - now, self.pace.news_s)):
                if worker in schedule.crew:
                    yield from _heard(schedule, crew, self._rows, worker, answer, self.report)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.dismiss()


def _heard(
    schedule: Schedule, crew: "_Crew", rows: "_Rows", worker: int, answer: Any, report: Report
) -> Iterator[tuple[int, Any]]:
    """Tell the scheduler what an actor answered; its result, where that is the first one of its shard."""
    if isinstance(answer, _Gone):
        crew.kill(worker)
        if (shard := schedule.crew[worker].shard) is not None and shard in schedule.undone:
            report(f"a worker was lost ({answer.reason}); {schedule.words.named(shard)} is handed out again")
        schedule.died(worker, time.monotonic(), answer.reason, with_node=answer.with_node)
        schedule.nodes(seats(crew.device))
    elif isinstance(answer, News):
        for text in answer.messages:
            report(text)
        shard = schedule.crew[worker].shard
        if more := rows.new(worker, shard, answer.rows):
            report(more)
        if answer.error is not None:
            if shard in schedule.undone:
                raise answer.error
            crew.kill(worker)  # it was second; its shard is done, and no worse for it
            schedule.died(worker, time.monotonic(), str(answer.error))
        elif answer.done is None:
            crew.ask(worker)
        elif schedule.done(worker) is not None:
            yield answer.done
    elif answer is not None:
        crew.kill(worker)
        if schedule.unfit(worker, answer):
            report(f"{answer}; it is left out")
    else:
        schedule.ready(worker)


class _Rows:
    """Rows that are done, each counted once: of a shard in two hands, or done again, only what goes beyond the most
    that anybody has done of it."""

    def __init__(self) -> None:
        self._of_worker: Counter[int] = Counter()
        self._of_shard: Counter[int] = Counter()

    def begin(self, worker: int) -> None:
        self._of_worker[worker] = 0

    def new(self, worker: int, shard: int | None, rows: int) -> int:
        if shard is None:
            return 0
        self._of_worker[worker] += rows
        more = max(0, self._of_worker[worker] - self._of_shard[shard])
        self._of_shard[shard] += more
        return more


@dataclass(frozen=True)
class _Gone:
    """reason: one line. with_node: whether its node is gone, too."""

    reason: str
    with_node: bool


class _Crew:
    """The actors, and what they answer. Answers come by callback into a queue, where a signal's error is raised as
    itself; inside `ray.wait` it becomes a SystemError."""

    def __init__(self, orders: Orders, device: str, news_s: float) -> None:
        import ray

        self.orders, self.device, self.news_s = orders, device, news_s
        self._actors: dict[int, Any] = {}
        self._waiting: dict[int, Any] = {}
        self._answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._kind = ray.remote(ShardActor)

    def start(self, worker: int, node: str) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        takes = {"num_cpus": 1} if self.device == "cpu" else {"num_cpus": 0, "num_gpus": 1}
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        kind = self._kind.options(**takes, max_restarts=0, max_task_retries=0, scheduling_strategy=there)
        self._actors[worker] = kind.remote(replace(self.orders, number=worker))
        self._expect(worker, self._actors[worker].look.remote())

    def ask(self, worker: int, unit: Unit | None = None) -> None:
        """For news; of a unit that it is to begin, or of the one at hand."""
        self._expect(worker, self._actors[worker].news.remote(unit, self.news_s))

    def _expect(self, worker: int, answer: Any) -> None:
        self._waiting[worker] = answer
        answer.future().add_done_callback(lambda future: self._answers.put((worker, future)))

    def answers(self, wait_s: float) -> list[tuple[int, Any]]:
        """What has come in, waiting for the first one: an actor's own answer, or `_Gone`."""
        found: list[tuple[int, Any]] = []
        try:
            found.append(self._answers.get(timeout=max(wait_s, 0.01)))
            while True:
                found.append(self._answers.get_nowait())
        except queue.Empty:
            return [(worker, _answer(future)) for worker, future in found]

    def kill(self, worker: int) -> None:
        import ray

        self._waiting.pop(worker, None)
        if worker in self._actors:
            ray.kill(self._actors.pop(worker))

    def dismiss(self) -> None:
        """Kill all, and wait a moment until they are: what they write would be in the way of the clean-up."""
        import ray

        waiting = list(self._waiting.values())
        for worker in list(self._actors):
            self.kill(worker)
        if waiting:
            ray.wait(waiting, num_returns=len(waiting), timeout=PATIENCE_S)


def _answer(future: Any) -> Any:
    from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, RayTaskError) or not isinstance(error, RayError):
        raise RuntimeError(f"in a worker of the cluster:\n{error}")
    # An unavailable actor's node is likely gone, and Ray finds out some seconds later.
    return _Gone(why_lost(error), isinstance(error, ActorUnavailableError) or "its node has died" in str(error))
