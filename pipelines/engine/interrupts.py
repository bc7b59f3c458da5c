"""SIGINT, SIGTERM and SIGHUP as an ordinary error: the shard at hand is dropped, everything complete stays."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from viewkit.shards.errors import ViewkitError

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(ViewkitError):
    """The user or the machine asked the job to stop."""


@contextmanager
def interruptible(what_next: str) -> Iterator[None]:
    """Inside, SIGINT, SIGTERM and SIGHUP (a closed terminal; not under nohup, which ignores it) raise `Interrupted`;
    further ones are ignored, so that the clean-up is not cut short.

    Outside the main thread Python delivers no signals, and this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(f"stopped by {signal.Signals(number).name}; {what_next}")

    heard = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
