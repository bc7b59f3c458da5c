"""What a person sees: progress (live, plain lines or JSON events), results, and errors as one line."""

import json
import sys
import time
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewkit.shards.files import explained

if TYPE_CHECKING:
    from viewkit.pipelines.engine.contract import Progress

PLAIN_EVERY_S = 5.0
CONTROL = ("Cc", "Cf")
"""Unicode categories of characters that are not shown but do something, e.g. move the cursor or reverse the text."""


def make_progress(as_json: bool) -> "Progress":
    """JSON events when asked for, a live display on a terminal, plain lines otherwise."""
    if as_json:
        return JsonProgress()
    return LiveProgress() if sys.stderr is not None and sys.stderr.isatty() else PlainProgress()


class _Counted:
    """What all three count: items done, the rate since the start, the numbers reported last."""

    def __init__(self) -> None:
        self.stage, self.unit, self.total, self.done = "", "", 0, 0
        self.begin, self.first = time.monotonic(), 0
        self.numbers: dict[str, float | int | str] = {}

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        self.stage, self.unit, self.total, self.done, self.first = stage, unit, total, done, done
        self.begin = time.monotonic()
        self.numbers = {}

    def advance(self, count: int, **numbers: float | int | str) -> None:
        self.done += count
        self.numbers |= numbers

    @property
    def rate(self) -> float:
        """Items per second in this run."""
        return (self.done - self.first) / max(time.monotonic() - self.begin, 1e-9)

    @property
    def left_s(self) -> float | None:
        return (self.total - self.done) / self.rate if self.rate > 0 else None


class JsonProgress(_Counted):
    """One JSON object a line on standard output."""

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        super().start(stage, total, unit, done)
        print_json({"event": "start", "stage": stage, "total": total, "unit": unit, "done": done})

    def advance(self, count: int, **numbers: float | int | str) -> None:
        super().advance(count, **numbers)
        print_json({"event": "progress", "stage": self.stage, "done": self.done, "total": self.total, **numbers})

    def message(self, text: str) -> None:
        print_json({"event": "message", "text": text})

    def finish(self, **summary: Any) -> None:
        print_json({"event": "done", **summary})


class PlainProgress(_Counted):
    """A line every few seconds on standard error, for logs and pipes."""

    def __init__(self) -> None:
        super().__init__()
        self.printed = 0.0

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        super().start(stage, total, unit, done)
        self.printed = time.monotonic()
        resumed = f", {done} already done" if done else ""
        self.message(f"{stage}: {total} {unit}{resumed}")

    def advance(self, count: int, **numbers: float | int | str) -> None:
        super().advance(count, **numbers)
        if time.monotonic() - self.printed >= PLAIN_EVERY_S:
            self.printed = time.monotonic()
            self.message(f"{self.stage}: {_status_line(self)}")

    def message(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)

    def finish(self, **summary: Any) -> None:
        self.message(finish_line(summary))


class LiveProgress(_Counted):
    """A bar that rewrites itself on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self.console = Console(stderr=True)
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.task: Any = None

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        super().start(stage, total, unit, done)
        self.bars.start()
        if self.task is not None:
            self.bars.remove_task(self.task)
        self.task = self.bars.add_task(stage, total=total, completed=done, status="")

    def advance(self, count: int, **numbers: float | int | str) -> None:
        super().advance(count, **numbers)
        if self.task is not None:
            self.bars.update(self.task, completed=self.done, status=_status_line(self))

    def message(self, text: str) -> None:
        self.console.print(printable(text), markup=False, highlight=False)

    def finish(self, **summary: Any) -> None:
        self.stop()
        self.message(finish_line(summary))

    def stop(self) -> None:
        self.bars.stop()


def _status_line(counted: _Counted) -> str:
    left = "" if counted.left_s is None else f", {_duration(counted.left_s)} left"
    numbers = "".join(f", {name} {_number(value)}" for name, value in counted.numbers.items())
    return f"{counted.done}/{counted.total} {counted.unit}, {counted.rate:.1f}/s{left}{numbers}"


def _number(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def finish_line(summary: dict[str, Any]) -> str:
    """One line about a finished stage."""
    stage, folder = summary["stage"], summary["folder"]
    state = "already there" if not summary["written"] else "done"
    if not (summary["shards"] or summary["numbers"] or summary["written"]):
        return f"{stage}: this part has no shards: {folder}"
    if not summary["shards"]:
        numbers = ", ".join(
            f"{name} {_number(value)}" for name, value in summary["numbers"].items() if isinstance(value, int | float)
        )
        return f"{stage}: {state}: {folder}" + (f" ({numbers})" if numbers else "")
    rejected = sum(summary["rejected"].values())
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(summary["rejected"].items()))
    return (
        f"{stage}: {state}: {_shards(summary['shards'])}, {summary['seen']} rows seen = {summary['kept']} kept + "
        f"{rejected} rejected{f' ({reasons})' if reasons else ''}: {folder}"
    )


def _shards(count: int) -> str:
    return f"{count} shard" + ("" if count == 1 else "s")


def print_json(value: Any) -> None:
    say(json.dumps(value, sort_keys=True))


def print_error(message: str) -> None:
    """The one line of an error; names with line breaks cannot make it two."""
    print("error: " + printable(" ".join(message.splitlines())), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """A line on standard output."""
    with explained(Path("standard output")):
        print(printable(text), flush=True)


def printable(text: str) -> str:
    """The text with control characters written out: names and messages from data must not steer the terminal."""
    return "".join(
        each if each in "\n\t" or unicodedata.category(each) not in CONTROL else ascii(each)[1:-1] for each in text
    )
