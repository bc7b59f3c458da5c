"""One writer for a column or artifact at a time, held by the operating system and gone with the process."""

import fcntl
import glob
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkit.shards.errors import DataError, RefusedError
from viewkit.shards.files import explained, make_folder, open_own

Say = Callable[[str], None]


@contextmanager
def artifact_lock(dataset: Path, name: str, *, shared: bool, wait: Say | None = None) -> Iterator[None]:
    """Hold the artifact `name`: alone, to write it, or together with others, to read it while nobody writes.

    wait: called with a line when another process has it, which is then waited for; None: `RefusedError`.
    """
    with _held(_lock_path(dataset, name), fcntl.LOCK_SH if shared else fcntl.LOCK_EX, name, dataset, wait):
        yield


@contextmanager
def writer_lock(dataset: Path, name: str, part: tuple[int, int] = (0, 1)) -> Iterator[None]:
    """Hold the right to write `name` of the dataset; `RefusedError` when another process has it.

    part: (i, n): several processes may write different parts of one column at the same time (Slurm arrays); a run of
    the whole column excludes them all.
    """
    index, count = part
    path = _lock_path(dataset, name)
    with _held(path, fcntl.LOCK_EX if count == 1 else fcntl.LOCK_SH, name, dataset):
        if count == 1:
            yield
            return
        with claim_lock(dataset, name):
            _refuse_other_counts(path, count, name, dataset)
            together = _held(path.with_name(f"{path.name}-of-{count}"), fcntl.LOCK_SH, name, dataset)
            together.__enter__()
        try:
            with _held(path.with_name(f"{path.name}-{index}-of-{count}"), fcntl.LOCK_EX, name, dataset):
                yield
        finally:
            together.__exit__(None, None, None)


def _refuse_other_counts(path: Path, count: int, name: str, dataset: Path) -> None:
    """`RefusedError` when processes that cut the column into another number of parts are at work: every part deletes
    what killed writers of its own shards left, and so the parts of one cut alone never meet in a shard."""
    for other in path.parent.glob(f"{glob.escape(path.name)}-of-*"):
        if other.name != f"{path.name}-of-{count}":
            try:
                with _held(other, fcntl.LOCK_EX, name, dataset):
                    pass
            except RefusedError:
                raise RefusedError(
                    f"{dataset}: '{name}' is being written in {other.name.rpartition('-')[2]} parts right now, and "
                    f"--part says {count}; use the same number of parts, or wait for the others"
                ) from None


@contextmanager
def claim_lock(dataset: Path, name: str) -> Iterator[None]:
    """Held for the moment in which a part of `name` finds or writes its identity; the others wait."""
    path = _lock_path(dataset, f"{name}/claim")
    with explained(path):
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        with explained(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock_path(dataset: Path, name: str) -> Path:
    make_folder(dataset / ".locks")
    return dataset / ".locks" / name.replace("/", "%")


@contextmanager
def _held(path: Path, mode: int, name: str, dataset: Path, wait: Say | None = None) -> Iterator[None]:
    with explained(path):
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if wait is None:
                raise RefusedError(
                    f"{dataset}: another process is writing '{name}' right now; wait for it, or stop it and run again"
                ) from None
            wait(f"another process is writing '{name}'; waiting for it")
            fcntl.flock(descriptor, mode)
        except OSError as error:
            raise DataError(f"{path}: cannot be locked ({error.strerror}); use a file system that has locks") from error
        yield
    finally:
        os.close(descriptor)
