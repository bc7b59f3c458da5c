"""Progress of a job: one way to count, shown as a live display, as plain lines or as JSON events.

All stages look alike: the step among those of the experiment, units done, rate, time left for the stage and for the
whole, rejects, memory, and of a training how loss and kNN accuracy went.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

from viewkit.cli.console import printable
from viewkit.cli.events import DoneEvent, MessageEvent, ProgressEvent, StartEvent, emit
from viewkit.cli.machine import gpu_bytes, memory_bytes, size_text
from viewkit.cli.sparkline import bars_for, sparkline

PLAIN_EVERY_S = 5.0
JSON_EVERY_S = 0.5
MEMORY_EVERY_S = 2.0
CURVES = ("loss", "knn_top1")
"""Numbers whose course is shown, not only their last value."""
KNN = "knn_top1"


class Chain:
    """The steps of an experiment: which one runs, and what is known of how long the later ones take.

    commands: of every step, e.g. ``pretrain``. A later step is expected to take as long as the last one of the same
    command took, if that had work to do.
    """

    def __init__(self, commands: Sequence[str] = ("",)) -> None:
        self.commands, self.place = list(commands), 0
        self.took_s: dict[str, float] = {}

    def finished(self, seconds: float, worked: bool) -> None:
        """The step at `place` is done, after so many seconds."""
        if worked:
            self.took_s[self.commands[self.place]] = seconds

    @property
    def later(self) -> tuple[float, int]:
        """(seconds that the later steps take which can be estimated, number of the others)."""
        known = [self.took_s.get(command) for command in self.commands[self.place + 1 :]]
        return sum(each for each in known if each is not None), sum(each is None for each in known)

    @property
    def head(self) -> str:
        """``[3/9] ``, or nothing for a single command."""
        return f"[{self.place + 1}/{len(self.commands)}] " if len(self.commands) > 1 else ""


class Counted:
    """What all three count: units done, the rate since the start, the numbers reported last and how they went."""

    def __init__(self, chain: Chain | None = None) -> None:
        self.chain = chain or Chain()
        self.stage, self.unit, self.total, self.done = "", "", 0, 0
        self.made = self.begin = time.monotonic()
        self.first = 0
        self.rejects: int | None = None
        self.numbers: dict[str, float | int | str] = {}
        self.curves: dict[str, list[float]] = {}
        self._memory, self._memory_at = 0, float("-inf")

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        self.stage, self.unit, self.total, self.done, self.first = stage, unit, total, done, done
        self.begin = time.monotonic()
        self.numbers, self.curves = {}, {}
        self.rejects = None

    def advance(self, count: int, **numbers: float | int | str) -> None:
        self.done += count
        rejects = numbers.pop("rejects", None)
        if rejects is not None:
            self.rejects = int(rejects)
        self.numbers |= numbers
        for name in CURVES:
            if name in numbers:
                self.curves.setdefault(name, []).append(float(numbers[name]))

    @property
    def rate(self) -> float:
        """Units per second in this run."""
        return (self.done - self.first) / max(time.monotonic() - self.begin, 1e-9)

    @property
    def left_s(self) -> float | None:
        rate = self.rate
        return (self.total - self.done) / rate if rate > 0 else None

    @property
    def whole_left_s(self) -> float | None:
        """Seconds left for this step and the later ones that can be estimated; None outside of a chain."""
        left = self.left_s
        return None if len(self.chain.commands) < 2 or left is None else left + self.chain.later[0]

    @property
    def best_knn(self) -> float | None:
        return max(self.curves[KNN]) if KNN in self.curves else None

    @property
    def memory(self) -> int:
        """As measured at most a few seconds ago."""
        if time.monotonic() - self._memory_at > MEMORY_EVERY_S:
            self._memory, self._memory_at = memory_bytes(), time.monotonic()
        return self._memory

    def stop(self) -> None:
        """Give the terminal back, however the stage ended."""

    def event(self) -> ProgressEvent:
        return ProgressEvent(
            stage=self.stage,
            unit=self.unit,
            total=self.total,
            done=self.done,
            rate=round(self.rate, 4),
            left_s=None if self.left_s is None else round(self.left_s, 1),
            whole_left_s=None if self.whole_left_s is None else round(self.whole_left_s, 1),
            whole_unknown=self.chain.later[1],
            rejects=self.rejects,
            memory_bytes=self.memory,
            gpu_bytes=gpu_bytes(),
            best_knn=self.best_knn,
            numbers={name: _json_number(value) for name, value in self.numbers.items()},
        )

    def parts(self) -> list[str]:
        """What a person wants to know, a phrase each."""
        found = [f"{self.done}/{self.total} {self.unit}", f"{self.rate:.1f}/s"]
        if self.left_s is not None:
            found.append(f"{duration(self.left_s)} left")
        if self.whole_left_s is not None:
            unknown = self.chain.later[1]
            more = f" and {unknown} steps not timed yet" if unknown else ""
            found.append(f"whole {duration(self.whole_left_s)}{more}")
        if self.rejects:
            found.append(f"{self.rejects} rejected")
        found += [f"{name} {number(value)}" for name, value in self.numbers.items() if name != KNN]
        if self.best_knn is not None:
            found.append(f"kNN {100 * self.curves[KNN][-1]:.1f} % (best {100 * self.best_knn:.1f})")
        found.append(size_text(self.memory))
        gpu = gpu_bytes()
        return found if gpu is None else [*found, f"GPU {size_text(gpu)}"]

    def sparklines(self, bars: str) -> list[str]:
        """A line for every number whose course is known, e.g. ``loss ▇▅▃▂ 4.21``."""
        return [
            f"{'kNN' if name == KNN else name} {sparkline(values, bars=bars)} {number(values[-1])}"
            for name, values in self.curves.items()
            if len(values) > 1
        ]


class JsonProgress(Counted):
    """One JSON object a line on standard output."""

    def __init__(self, chain: Chain | None = None) -> None:
        super().__init__(chain)
        self.printed = float("-inf")

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        super().start(stage, total, unit, done)
        self.printed = float("-inf")
        emit(StartEvent(stage=stage, unit=unit, total=total, done=done))

    def advance(self, count: int, **numbers: float | int | str) -> None:
        super().advance(count, **numbers)
        if count == 0 or self.done == self.total or time.monotonic() - self.printed >= JSON_EVERY_S:
            self.printed = time.monotonic()
            emit(self.event())

    def message(self, text: str) -> None:
        emit(MessageEvent(text=text))

    def finish(self, **summary: Any) -> None:
        emit(DoneEvent(**summary, seconds=round(time.monotonic() - self.made, 2)))


class PlainProgress(Counted):
    """A line every few seconds on standard error, for logs and pipes."""

    def __init__(self, chain: Chain | None = None) -> None:
        super().__init__(chain)
        self.printed = 0.0

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        super().start(stage, total, unit, done)
        self.printed = time.monotonic()
        resumed = f", {done} already done" if done else ""
        self.message(f"{self.chain.head}{stage}: {total} {unit}{resumed}")

    def advance(self, count: int, **numbers: float | int | str) -> None:
        super().advance(count, **numbers)
        if time.monotonic() - self.printed >= PLAIN_EVERY_S:
            self.printed = time.monotonic()
            self.message(f"{self.chain.head}{self.stage}: {', '.join(self.parts())}")

    def message(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)

    def finish(self, **summary: Any) -> None:
        bars = bars_for(None if sys.stderr is None else sys.stderr.encoding)
        self.message("; ".join([finish_line(summary, time.monotonic() - self.made), *self.sparklines(bars)]))


def number(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _json_number(value: float | int | str) -> float | int | str | None:
    """JSON has no NaN and no infinity."""
    return value if isinstance(value, str) or abs(value) < float("inf") else None


def duration(seconds: float) -> str:
    """1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def finish_line(summary: dict[str, Any], seconds: float | None = None) -> str:
    """One line about a finished stage: what was written, its size, how long it took."""
    stage, folder = summary["stage"], summary["folder"]
    written = bool(summary["written"])
    state = "done" if written else "already there"
    took = f" in {duration(seconds)}" if written and seconds is not None else ""
    where = f"{folder}, {size_text(summary['bytes'])}{took}"
    if not (summary["shards"] or summary["numbers"] or written):
        return f"{stage}: this part has no shards: {folder}"
    if not summary["shards"]:
        numbers = ", ".join(
            f"{name} {number(value)}" for name, value in summary["numbers"].items() if isinstance(value, int | float)
        )
        return f"{stage}: {state}: {where}" + (f" ({numbers})" if numbers else "")
    rejected = sum(summary["rejected"].values())
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(summary["rejected"].items()))
    return (
        f"{stage}: {state}: {_shards(summary['shards'])}, {summary['seen']} rows seen = {summary['kept']} kept + "
        f"{rejected} rejected{f' ({reasons})' if reasons else ''}: {where}"
    )


def _shards(count: int) -> str:
    return f"{count} shard" + ("" if count == 1 else "s")
