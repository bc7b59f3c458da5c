"""One writer for a column or artifact at a time, held by the operating system and gone with the process."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkit.shards.errors import DataError, RefusedError
from viewkit.shards.files import explained, make_folder


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
        else:
            with _held(path.with_name(f"{path.name}-{index}-of-{count}"), fcntl.LOCK_EX, name, dataset):
                yield


@contextmanager
def claim_lock(dataset: Path, name: str) -> Iterator[None]:
    """Held for the moment in which a part of `name` finds or writes its identity; the others wait."""
    path = _lock_path(dataset, f"{name}/claim")
    with explained(path), open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock_path(dataset: Path, name: str) -> Path:
    make_folder(dataset / ".locks")
    return dataset / ".locks" / name.replace("/", "%")


@contextmanager
def _held(path: Path, mode: int, name: str, dataset: Path) -> Iterator[None]:
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                f"{dataset}: another process is writing '{name}' right now; wait for it, or stop it and run again"
            ) from None
        except OSError as error:
            raise DataError(f"{path}: cannot be locked ({error.strerror}); use a file system that has locks") from error
        yield
    finally:
        os.close(descriptor)
