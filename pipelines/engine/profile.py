"""``--profile FILE``: the spans of a command, its worker processes' too, as a trace that Perfetto opens.

The file is in the Chrome trace event format; one whose name ends in .gz is compressed. See docs/profile.md.
"""

import gzip
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewkit.shards import spans
from viewkit.shards.artifact import refuse_inside
from viewkit.shards.errors import ConfigError, ViewkitError
from viewkit.shards.files import write_atomic
from viewkit.shards.spans import Recorded, Recorder

ENDINGS = (".json", ".json.gz")


@dataclass(frozen=True)
class Profiling:
    """What a worker process is told. kernels: units of work of which kernels are recorded, too."""

    kernels: int = 0

    @staticmethod
    def of_this_process() -> "Profiling | None":
        """What is recorded here; None: nothing."""
        found = spans.recorder()
        return None if found is None else Profiling(getattr(found.units, "count", 0))

    def start(self) -> Recorder:
        """Record the spans of this process."""
        recorder = Recorder(self._units() if self.kernels else None)
        spans.record_to(recorder)
        return recorder

    def _units(self) -> spans.Units:
        from viewkit.pipelines.engine.kernels import KernelUnits  # imports torch

        return KernelUnits(self.kernels)


@contextmanager
def profiled(file: str | None, kernels: int = 0) -> Iterator[None]:
    """Record what happens inside and write it to `file`, also when it ends in an error. Nothing where no file is given,
    or where a caller records already.

    kernels: of so many steps or batches, operators and GPU kernels are recorded, too. Under torchrun every process
    but the first writes a file of its own, FILE.rankN. Raises `ConfigError` and `RefusedError` before anything is done.
    """
    if file is None and kernels:
        raise ConfigError("--profile-kernels is given without --profile FILE; say where the profile is to be written")
    if file is None or spans.recorder() is not None:
        yield
        return
    path = checked_path(file)
    if kernels < 0:
        raise ConfigError(f"--profile-kernels is {kernels}; it is a number of steps or batches, at least 0")
    start_ns, recorder = time.perf_counter_ns(), Profiling(kernels).start()
    try:
        yield
    except BaseException:
        with suppress(ViewkitError):  # the error at hand says more than a profile that cannot be written
            _finish(recorder, path, start_ns)
        raise
    _finish(recorder, path, start_ns)


def checked_path(file: str) -> Path:
    """Where this process writes its profile."""
    path = Path(file)
    if not path.name.endswith(ENDINGS):
        raise ConfigError(f"--profile is {file}; a profile is JSON, give it a name that ends in {' or '.join(ENDINGS)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--profile is {file}; there is no folder {path.parent}, make it first")
    if path.is_dir():
        raise ConfigError(f"--profile is {file}, which is a folder; name a file")
    refuse_inside(path, "--profile")
    rank = int(os.environ.get("RANK", "0"))
    if not rank:
        return path
    name, _, ending = path.name.partition(".json")
    return path.with_name(f"{name}.rank{rank}.json{ending}")


def _finish(recorder: Recorder, path: Path, start_ns: int) -> None:
    recorded = recorder.take()
    spans.record_to(None)
    content = render_trace(recorded, start_ns)
    write_atomic(path, gzip.compress(content, 5) if path.suffix == ".gz" else content)


def render_trace(recorded: Recorded, start_ns: int) -> bytes:
    """The Chrome trace event format: times in microseconds since `start_ns`, a track for every thread."""
    own = os.getpid()
    processes = sorted({process for process, _ in recorded.threads}, key=lambda each: (each != own, each))
    events: list[dict[str, Any]] = []
    for place, process in enumerate(processes):
        name = "viewkit" if process == own else f"worker {process}"
        events.append(_name("process_name", process, 0, name))
        events.append(
            {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": place}}
        )
    events += [_name("thread_name", process, thread, name) for (process, thread), name in recorded.threads.items()]
    events += [
        {
            "ph": "X",
            "cat": "viewkit",
            "name": name,
            "pid": process,
            "tid": thread,
            "ts": (begin_ns - start_ns) / 1000,
            "dur": (end_ns - begin_ns) / 1000,
            **({"args": dict(numbers)} if numbers else {}),
        }
        for name, process, thread, begin_ns, end_ns, numbers in recorded.events
    ]
    events += [{**each, "ts": each["ts"] - start_ns / 1000} if "ts" in each else each for each in recorded.kernels]
    facts = {"program": "viewkit", "spans_left_out": recorded.dropped}
    trace = {"displayTimeUnit": "ms", "otherData": facts, "traceEvents": events}
    return json.dumps(trace, separators=(",", ":")).encode() + b"\n"


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
