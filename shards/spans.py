"""Spans: what a process does, from when to when. Off, which is usual, they make no object and cost one comparison.

`pipelines.engine.profile` turns them on and writes them down for ``--profile``. Times are those of
`time.perf_counter_ns`, one clock for all processes of a machine.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, runtime_checkable

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_EVENTS = 500_000
"""Spans that a profile keeps, about 60 MB of JSON; the later ones are counted."""
LEAST_NS = 20_000
"""`spans_of` keeps no span that is shorter: most items of an iterator are there already."""


class Event(NamedTuple):
    """One span. thread: the operating system's number of it. numbers: whatever tells it from others of its name."""

    name: str
    process: int
    thread: int
    start_ns: int
    end_ns: int
    numbers: Mapping[str, Any]


@dataclass
class Recorded:
    """What one process or several did. threads: names by (process, thread). kernels: events of `torch.profiler`, as the
    Chrome format has them. dropped: spans beyond `MAX_EVENTS`."""

    events: list[Event] = field(default_factory=list)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    dropped: int = 0

    def merge(self, other: "Recorded") -> None:
        """Add what another process did."""
        room = max(0, MAX_EVENTS - len(self.events))
        self.events += other.events[:room]
        self.dropped += other.dropped + max(0, len(other.events) - room)
        self.threads |= other.threads
        self.kernels += other.kernels


@runtime_checkable
class Units(Protocol):
    """Told of units of work, on the thread that does them: `engine.kernels` records the kernels of the first ones."""

    def begin(self, name: str) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None:
        """No further kernels."""
        ...


class Recorder:
    """Collects the spans of this process, from all threads."""

    def __init__(self, units: Units | None = None) -> None:
        self.recorded, self.units = Recorded(), units

    def add(self, name: str, start_ns: int, numbers: Mapping[str, Any]) -> None:
        """A span that ends now."""
        end_ns, recorded = time.perf_counter_ns(), self.recorded
        if len(recorded.events) >= MAX_EVENTS:
            recorded.dropped += 1
            return
        thread, process = threading.get_native_id(), os.getpid()
        recorded.events.append(Event(name, process, thread, start_ns, end_ns, numbers))
        if (process, thread) not in recorded.threads:
            recorded.threads[process, thread] = threading.current_thread().name

    def take(self) -> Recorded:
        """What was collected since the last call, the kernels of units at hand included."""
        if self.units is not None:
            self.units.close()
        taken, self.recorded = self.recorded, Recorded()
        return taken


class Span:
    """A context manager that adds one event."""

    __slots__ = ("name", "numbers", "recorder", "start_ns", "units")

    def __init__(self, recorder: Recorder, name: str, numbers: Mapping[str, Any], units: Units | None = None) -> None:
        self.recorder, self.name, self.numbers, self.units = recorder, name, numbers, units

    def __enter__(self) -> None:
        self.start_ns = time.perf_counter_ns()
        if self.units is not None:
            self.units.begin(self.name)

    def __exit__(self, *error: object) -> None:
        if self.units is not None:
            self.units.end()
        self.recorder.add(self.name, self.start_ns, self.numbers)


_recorder: Recorder | None = None
NOTHING: AbstractContextManager[None] = nullcontext()
"""What `span` gives while nothing records."""


def record_to(recorder: Recorder | None) -> None:
    """Record the spans of this process from now on; None: stop."""
    global _recorder
    _recorder = recorder


def recorder() -> Recorder | None:
    """What records the spans of this process."""
    return _recorder


def span(name: str, **numbers: Any) -> AbstractContextManager[None]:
    """A span of this thread. Not to be held across a `yield`: whatever runs meanwhile would be counted."""
    return NOTHING if _recorder is None else Span(_recorder, name, numbers)


def unit(name: str, **numbers: Any) -> AbstractContextManager[None]:
    """A span of work that repeats, such as the step of a training; of the first few, kernels can be recorded."""
    return NOTHING if _recorder is None else Span(_recorder, name, numbers, _recorder.units)


def spanned(name: str, *, is_unit: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: every call is a span, or a `unit`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if _recorder is None:
                return function(*args, **kwargs)
            with Span(_recorder, name, {}, _recorder.units if is_unit else None):
                return function(*args, **kwargs)

        return call

    return decorate


def spans_of(name: str, items: Iterable[T]) -> Iterator[T]:
    """The items; the time until each of them was there is a span."""
    return iter(items) if _recorder is None else _each(_recorder, name, iter(items))


def _each(recorder: Recorder, name: str, items: Iterator[T]) -> Iterator[T]:
    while True:
        start_ns = time.perf_counter_ns()
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            if time.perf_counter_ns() - start_ns >= LEAST_NS:
                recorder.add(name, start_ns, {})
        yield item
