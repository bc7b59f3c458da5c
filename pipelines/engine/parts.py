"""Parts of a fit: done by this process, by one per GPU, or by a cluster. Results come back; the stage adds them up.

How the work was cut must not show in the result, so what a part finds adds up exactly, in any order: integers, sums of
floating-point numbers on a grid that leaves nothing to round, rows with a place of their own. Nothing of a part is
written, and a fit that is stopped starts over.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from viewkit.pipelines.engine.contract import Crew, FitStage, Progress
from viewkit.pipelines.engine.execution import Devices, Spread, cores
from viewkit.pipelines.engine.folder import run_of
from viewkit.pipelines.engine.schedule import Limits
from viewkit.pipelines.engine.shard import Messages
from viewkit.pipelines.engine.units import Unit, Words
from viewkit.pipelines.engine.workers import Report, Work, Workers
from viewkit.shards.artifact import IDENTITY
from viewkit.shards.dataset import Dataset
from viewkit.shards.spans import span

PARTS = Words(one="part", named=lambda number: f"part {number} of the fit", kept=False)


@dataclass(frozen=True)
class PartWork:
    """Everything a process needs to do parts; pickled once into each. threads: that it may compute on, None: all."""

    stage: FitStage[Any]
    config: Any
    dataset: Dataset
    devices: Sequence[str]
    threads: int | None = None

    def __call__(self, number: int) -> Work:
        messages = Messages()
        device = self.devices[number % len(self.devices)]
        with span("prepare"):
            run = run_of(self.stage, self.config, self.dataset, device, messages, threads=self.threads)
            find = self.stage.part_work(self.config, run)

        def work(part: Any, report: Report) -> Any:
            messages.report = report
            with span("part"):
                return find(part, report)

        return work


class Alone:
    """This process, which loads its models when the first part is asked for."""

    is_alone = True

    def __init__(self, make_work: PartWork, report: Report) -> None:
        self._make_work, self._report = make_work, report
        self._work: Work | None = None

    def do(self, parts: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        self._work = self._work or self._make_work(0)
        for place, part in enumerate(parts):
            yield place, self._work(part, self._report)


class Together:
    """Processes of this machine, or actors of a cluster.

    crew: `Workers` or `Actors`. alone: does what is a single part, to which starting a process would be of no use.
    """

    is_alone = False

    def __init__(self, crew: Any, alone: Alone | None = None) -> None:
        self._crew, self._alone, self._next = crew, alone, 0

    def do(self, parts: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        if self._alone is not None and len(parts) == 1 and not self._next:
            yield from self._alone.do(parts)
            return
        first, self._next = self._next, self._next + len(parts)
        for number, found in self._crew.do([Unit(first + place, part) for place, part in enumerate(parts)]):
            yield number - first, found


def spreads(stage: Any, execution: Devices) -> bool:
    """Whether the parts of the stage are done on a cluster."""
    return isinstance(stage, FitStage) and stage.in_parts and isinstance(execution, Spread) and not execution.is_here


def cluster_of(stage: Any, execution: Devices) -> AbstractContextManager[None]:
    """Inside, this process is connected to the cluster that parts are done on, if they are."""
    if not spreads(stage, execution):
        return nullcontext()
    assert isinstance(execution, Spread)
    from viewkit.pipelines.engine.ray_cluster import connected  # Ray is an extra

    return connected(execution.on)


def devices_of_fit(stage: FitStage[Any], execution: Devices) -> list[str]:
    """Where the models of a fit run: of this machine, or what a worker of the cluster has."""
    if not spreads(stage, execution):
        return execution.devices()
    assert isinstance(execution, Spread)
    from viewkit.pipelines.engine.ray_cluster import device_on_ray

    return [device_on_ray(execution)]


def workers_of_fit(stage: FitStage[Any], execution: Devices, devices: Sequence[str]) -> int:
    """How many processes or actors share the parts, at most."""
    if not stage.in_parts or not isinstance(execution, Spread):
        return 1
    if execution.is_here:
        return execution.fit_processes(devices)
    from viewkit.pipelines.engine.ray_cluster import seats

    there = max(1, sum(seats(devices[0]).values()))
    return min(there, execution.workers or there)


@contextmanager
def crew_of(
    stage: FitStage[Any], config: Any, dataset: Dataset, execution: Devices, devices: Sequence[str], progress: Progress
) -> Iterator[Crew | None]:
    """Who does the parts of the stage, for as long as it fits; None for a stage without."""
    if not stage.in_parts:
        yield None
        return

    def tell(news: int | str) -> None:
        if isinstance(news, str):
            progress.message(news)
        else:
            progress.advance(news)

    work = PartWork(stage, config, dataset, devices)
    if spreads(stage, execution):
        assert isinstance(execution, Spread)
        from viewkit.pipelines.engine.on_ray import Actors

        claim, limits = dataset.path / stage.writes / IDENTITY, Limits(workers=execution.workers)
        with Actors(replace(work, threads=1), claim, devices[0], tell, limits, words=PARTS) as actors:
            yield Together(actors)
    elif (count := workers_of_fit(stage, execution, devices)) > 1:
        with Workers(replace(work, threads=max(1, cores() // count)), count, tell, PARTS) as processes:
            yield Together(processes, Alone(work, tell))
    else:
        yield Alone(work, tell)
