"""Writing files so that a reader sees all of one or nothing: part file, fsync, rename, fsync of the folder."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkit.shards.errors import DataError

PART = ".part"


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def part_path(path: Path) -> Path:
    """Where `path` is written before it is whole; another name for every writer, so two of them never mix."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART}")


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path`, which holds either its old bytes or all of the new ones, whatever happens."""
    part = part_path(path)
    with explained(path):
        try:
            with open(part, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def read_file(path: Path) -> bytes:
    """Bytes of `path`; `DataError` when it is missing or cannot be read."""
    with explained(path):
        return path.read_bytes()


def make_folder(path: Path) -> None:
    """Create `path` with its parents; `DataError` when something else is in the way or it is not allowed."""
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)


NEXT_STEP = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again, nothing finished is lost",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again, nothing finished is lost",
    errno.EROFS: "the file system is read-only; choose a folder you can write to",
    errno.EACCES: "permission denied; check the owner and mode, or choose another folder",
    errno.EPERM: "permission denied; check the owner and mode, or choose another folder",
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a file is in the place of a folder",
    errno.EEXIST: "a file is in the place of a folder",
    errno.EISDIR: "a folder is in the place of a file",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an operating system's error about `path` into one line for a person."""
    try:
        yield
    except BrokenPipeError:  # of standard output, not of a file
        raise
    except OSError as error:
        reason = NEXT_STEP.get(error.errno or 0, error.strerror or str(error))
        raise DataError(f"{error.filename or path}: {reason}") from error
