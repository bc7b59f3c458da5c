"""A worker of a cluster: keeps its model over shards, does one at a time, and is asked for news. Imports no Ray.

`on_ray` starts it as an actor. Work runs on one thread of its own, so that questions are answered meanwhile.
"""

import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

from viewkit.pipelines.engine.units import Unit
from viewkit.pipelines.engine.workers import THREAD_VARIABLES, Work, as_told
from viewkit.shards.errors import ViewkitError

SEEN_S = 45.0
"""How long a network file system may take to show a file that the driver has just written."""
LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Orders:
    """What an actor is started with, all of it picklable by any process.

    made: pickled function that makes the work, called with `number`. claim, sha256: a file of the driver's folder and
    the digest of its content. folder: where the driver was started; relative paths are meant from there.
    uses_torch: compute on one thread, as one process does. mirror: of a dataset in a store, pickled; a node
    looks at the store by itself, with the credentials of its own environment.
    """

    made: bytes
    number: int
    claim: str
    sha256: str
    folder: str
    uses_torch: bool
    seen_s: float = SEEN_S
    mirror: bytes | None = None


class News(NamedTuple):
    """rows: done since the last call. messages: lines for the person who watches. done: (number of the unit, result),
    or None. error: what the driver is to raise."""

    rows: int = 0
    messages: tuple[str, ...] = ()
    done: tuple[int, Any] | None = None
    error: Exception | None = None


class ShardActor:
    """Its methods are called one after the other, by the driver alone."""

    def __init__(self, orders: Orders) -> None:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # before torch is imported
        self.orders = orders
        self._todo: queue.SimpleQueue[Unit] = queue.SimpleQueue()
        self._said: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def look(self) -> str | None:
        """Whether the driver's folder is seen here; None, or what is wrong in one line."""
        with suppress(OSError):  # a node may lack it, and whatever is named by its whole path is found nevertheless
            os.chdir(self.orders.folder)
        if self.orders.mirror is not None:
            try:
                ForkingPickler.loads(self.orders.mirror)
            except ViewkitError as error:
                return f"node {socket.gethostname()}: {error}"
        path, until = Path(self.orders.claim), time.monotonic() + self.orders.seen_s
        while (wrong := self._wrong_with(path)) and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)
        return wrong

    def _wrong_with(self, path: Path) -> str | None:
        try:
            found = sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            what = f"cannot read {path} ({error.strerror})"
        else:
            if found == self.orders.sha256:
                return None
            what = f"has another {path}"
        return (
            f"node {socket.gethostname()} {what}; the dataset must lie in a file system that all nodes share, at the "
            "same place"
        )

    def news(self, unit: Unit | None, wait_s: float) -> News:
        """Begin the unit, if there is one; then what has happened since the last call, waiting for it a while."""
        if unit is not None:
            self._begin(unit)
        rows = 0
        messages: list[str] = []
        with suppress(queue.Empty):
            until = time.monotonic() + wait_s
            while True:
                kind, value = self._said.get(timeout=max(0.0, until - time.monotonic()))
                if kind == "done":
                    return News(rows, tuple(messages), done=value)
                if kind == "error":
                    return News(rows, tuple(messages), error=value)
                if isinstance(value, str):
                    messages.append(value)
                else:
                    rows += value
        return News(rows, tuple(messages))

    def _begin(self, unit: Unit) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="shards", daemon=True)
            self._thread.start()
        self._todo.put(unit)

    def _serve(self) -> None:
        """Load the model once, on the thread that will use it; then shard after shard, until something fails."""
        try:
            with self._threads():
                make_work: Callable[[int], Work] = ForkingPickler.loads(self.orders.made)
                work = make_work(self.orders.number)
                while True:
                    unit = self._todo.get()
                    done = work(unit.task, lambda news: self._said.put(("news", news)))
                    self._said.put(("done", (unit.number, done)))
        except Exception as error:  # noqa: BLE001 whatever it is, the driver raises it
            self._said.put(("error", as_told(error, f"in a worker on node {socket.gethostname()}")))

    def _threads(self) -> Any:
        if not self.orders.uses_torch:
            return nullcontext()
        from viewkit.pipelines.engine.threads import one_thread

        return one_thread()
