"""Operators and GPU kernels of the first units of work, by `torch.profiler`, on the clock of `shards.spans`."""

import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from viewkit.shards import spans

MARK = "viewkit unit"
"""Marks the first unit in both clocks."""
TRACKS = 10_000_000
"""Added to this process's number: torch's operators have a process of their own in the trace, as slices of one track
must lie inside each other, and two clocks agree to microseconds only."""


class KernelUnits:
    """`spans.Units` that records the second to the (count + 1)th unit of one thread; the first warms up.

    `torch.profiler` keeps some hundred bytes for every operator, so it cannot run for hours.
    """

    def __init__(self, count: int) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes to stderr, over the progress display
        self.count, self.seen = count, 0
        self.thread: int | None = None
        self.depth = 0  # units may lie in each other; the outermost counts
        self.profiler: profile | None = None
        self.marked_ns = 0
        self.mark: record_function | None = None

    def begin(self, name: str) -> None:
        self.thread = self.thread or threading.get_ident()
        if self.thread != threading.get_ident():
            return
        self.depth += 1
        if self.depth > 1 or self.seen > self.count:
            return
        self.seen += 1
        if self.seen == 2:
            kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
            self.profiler = profile(activities=kinds, acc_events=True)
            with spans.span("start profiler"):
                self.profiler.start()
            self.marked_ns, self.mark = time.perf_counter_ns(), record_function(MARK)
            self.mark.__enter__()

    def end(self) -> None:
        if self.thread != threading.get_ident():
            return
        self.depth -= 1
        if self.depth:
            return
        if self.mark is not None:
            self.mark.__exit__(None, None, None)
            self.mark = None
        if self.seen > self.count:
            self.close()

    def close(self) -> None:
        if self.profiler is None:
            return
        profiler, self.profiler = self.profiler, None
        self.seen = self.count + 1
        recorder = spans.recorder()
        with spans.span("stop profiler"):
            profiler.stop()
            if recorder is not None:
                recorder.recorded.kernels += events_of(profiler, self.marked_ns)


def events_of(profiler: profile, marked_ns: int) -> list[dict[str, Any]]:
    """What a stopped profiler has, with times in microseconds of `time.perf_counter_ns`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_bytes())["traceEvents"]
    mark = next(each for each in events if each.get("name") == MARK and each["ph"] == "X")
    later = marked_ns / 1000 - mark["ts"]
    own, found = os.getpid(), []
    for each in events:
        process = each.get("pid")
        if not isinstance(process, int) or each.get("name") == MARK:  # text: torch's frame around the whole recording
            continue
        named = each.get("name") == "process_name" and process == own
        found.append(
            {
                **each,
                "pid": process + TRACKS if process == own else process,
                **({"ts": each["ts"] + later} if "ts" in each else {}),
                **({"args": {"name": f"torch operators of {own}"}} if named else {}),
            }
        )
    return found
