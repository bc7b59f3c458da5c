"""Writing files so that a reader sees all of one or nothing: part file, fsync, rename, fsync of the folder."""

import errno
import os
import resource
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from viewkit.shards.errors import DataError
from viewkit.shards.spans import spanned

PART = ".part"


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def part_path(path: Path) -> Path:
    """Where `path` is written before it is complete; another name for every writer, so two of them never mix."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART}")


def open_own(path: str | Path, flags: int) -> int:
    """`os.open` for a file of our own, for `open(..., opener=open_own)`: a symbolic link in its place is an error, so
    nothing outside the dataset is ever written to."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


@spanned("write")
def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to `path`, which holds either its old bytes or all of the new ones, whatever happens."""
    with _durable_part(path, content) as part:
        os.replace(part, path)
        sync_folder(path.parent)


def write_first(path: Path, content: bytes) -> bool:
    """Write `content` to `path` unless something is there; whether it was written. Of two writers one is first.

    The file appears at once and whole, by a hard link. On file systems without hard links (exFAT) there is no such
    operation: there, two writers that look at the same moment both write, and only locks keep them apart.
    """
    with _durable_part(path, content) as part:
        try:
            os.link(part, path, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            if os.path.lexists(path):
                return False
            os.replace(part, path)
        sync_folder(path.parent)
    return True


NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def _durable_part(path: Path, content: bytes) -> Iterator[Path]:
    """A part file of `path` with all of `content` on the disk; gone afterwards, if it still has this name."""
    part = part_path(path)
    with explained(path):
        try:
            with open(part, "xb", opener=open_own) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield part
        finally:
            with suppress(OSError):  # what went wrong before says more, and the next run deletes part files
                part.unlink(missing_ok=True)


def read_file(path: Path) -> bytes:
    """Bytes of `path`; `DataError` when it is missing or cannot be read."""
    with explained(path):
        return path.read_bytes()


def make_folder(path: Path) -> None:
    """Create `path` with its parents; `DataError` when something else is in the way or it is not allowed."""
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)


def most_open_files() -> int:
    """Files that a column or a source of archives keeps open: a trainer reads up to three columns, and other files need
    room, too."""
    return max(8, min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 5))


def refuse_too_many_open(error: BaseException, path: str | Path) -> None:
    """`DataError` where no further file can be opened, which says nothing of the file at hand; else nothing is done."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        raise DataError(explanation(error, Path(path))) from error


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
    errno.ELOOP: "a symbolic link is in its place, and viewkit does not write through links; remove the link",
    errno.EMFILE: "too many open files; raise the limit with 'ulimit -n', or use fewer --workers",
    errno.ENFILE: "too many open files on this machine; try again later",
    errno.EIO: "the disk reports an input/output error; check it, and run the same command again",
    errno.ENOMEM: "not enough memory; close other programs, or use fewer --workers",
    errno.ENAMETOOLONG: "the name is too long for the file system; choose a shorter one",
    errno.EFBIG: "the file would exceed the allowed size; raise the limit with 'ulimit -f'",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an operating system's error about `path` into one line for a person."""
    try:
        yield
    except BrokenPipeError:  # of standard output, not of a file
        raise
    except OSError as error:
        raise DataError(explanation(error, path)) from error


def explanation(error: OSError, path: Path | None = None) -> str:
    """What happened and what to do next, in one line. path: what was worked on, where the error does not say."""
    reason = NEXT_STEP.get(error.errno or 0, error.strerror or str(error))
    where = error.filename if error.filename is not None else path
    return reason if where is None else f"{os.fsdecode(where) if isinstance(where, bytes) else where}: {reason}"
