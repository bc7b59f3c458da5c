"""A crew of several workers in this process, for tests: everything travels as bytes, and results come in a jumble.

And fits whose worker dies once, for real processes; importable from them.
"""

import os
import pickle
import random
import signal
from contextlib import contextmanager
from pathlib import Path

from viewkit.pipelines.engine import fit
from viewkit.pipelines.engine.parts import PartWork
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.histograms.stage import HistogramsStage


def travelled(sent):
    """What arrives in another process."""
    return pickle.loads(pickle.dumps(sent))  # noqa: S301 our own


class Dealt:
    """`workers` workers that take turns. parts: all that was asked for, in the order of the requests."""

    is_alone = False

    def __init__(self, make_work, report, workers):
        self.work = [travelled(make_work)(number) for number in range(workers)]
        self.report, self.parts, self.draw = report, [], random.Random(workers)

    def do(self, parts):
        self.parts += parts
        order = list(range(len(parts)))
        self.draw.shuffle(order)
        for turn, place in enumerate(order):
            work = self.work[turn % len(self.work)]
            yield place, travelled(work(travelled(parts[place]), self.report))


def deal(monkeypatch, workers):
    """Let fits be done by such a crew; returns the list that will hold it."""
    hired = []

    @contextmanager
    def crew_of(stage, config, dataset, execution, devices, progress):
        hired.append(Dealt(PartWork(stage, config, dataset, devices, 1), progress.advance, workers))
        yield hired[-1]

    monkeypatch.setattr(fit, "crew_of", crew_of)
    return hired


class DiesOnce:
    """The worker that is about to give back the first result of all kills itself."""

    deaths: Path

    def part_work(self, config, run):
        find = super().part_work(config, run)

        def dying(part, report):
            found = find(part, report)
            if not list(self.deaths.iterdir()):
                (self.deaths / "one").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return dying


class DyingHistograms(DiesOnce, HistogramsStage):
    def __init__(self, deaths):
        self.deaths = deaths


class DyingForeground(DiesOnce, ForegroundStage):
    def __init__(self, deaths, **options):
        super().__init__(**options)
        self.deaths = deaths
