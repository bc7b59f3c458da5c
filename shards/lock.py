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
    folder = dataset / ".locks"
    make_folder(folder)
    flat = name.replace("/", "%")
    with _held(folder / flat, fcntl.LOCK_EX if count == 1 else fcntl.LOCK_SH, name, dataset):
        if count == 1:
            yield
        else:
            with _held(folder / f"{flat}-{index}-of-{count}", fcntl.LOCK_EX, name, dataset):
                yield


@contextmanager
def claim_lock(dataset: Path, name: str) -> Iterator[None]:
    """Held for the moment in which a part of `name` finds or writes its identity; the others wait."""
    folder = dataset / ".locks"
    make_folder(folder)
    path = folder / f"{name.replace('/', '%')}%claim"
    with explained(path), open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _explained_but_busy(path: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise DataError(f"{path}: cannot be locked ({error.strerror}); use a file system that has locks") from error


@contextmanager
def _held(path: Path, mode: int, name: str, dataset: Path) -> Iterator[None]:
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            with _explained_but_busy(path):
                fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                f"{dataset}: another process is writing '{name}' right now; wait for it, or stop it and run again"
            ) from None
        yield
    finally:
        os.close(descriptor)
