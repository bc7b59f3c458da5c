"""Where an export is written: all of it appears at once, and nothing of somebody else's is overwritten."""

import filecmp
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkit.shards.artifact import refuse_inside
from viewkit.shards.errors import RefusedError
from viewkit.shards.files import explained, make_folder, part_path, sync_folder


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A part file to write to, which becomes `path` at the end. The same bytes change nothing.

    `RefusedError` where a file with other bytes, a folder or a link lies there, or where `path` is among a stage's.
    """
    refuse_inside(path, "export")
    if path.is_dir() or path.is_symlink():
        raise RefusedError(f"export: {path} is there and is no file; choose another --to")
    make_folder(path.parent)
    part = part_path(path)
    with explained(path):
        try:
            yield part
            if path.exists() and not filecmp.cmp(part, path, shallow=False):
                raise RefusedError(
                    f"export: {path} is there and holds something else; delete it or choose another --to"
                )
            _sync(part)
            os.replace(part, path)
            sync_folder(path.parent)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A part folder to write to, which becomes `path` at the end; `RefusedError` where anything lies there."""
    refuse_inside(path, "export")
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise RefusedError(f"export: {path} is there and is no empty folder; delete it or choose another --to")
    make_folder(path.parent)
    part = part_path(path)
    with explained(path):
        part.mkdir()
        try:
            yield part
            for each in part.rglob("*"):
                if each.is_file():
                    _sync(each)
            os.replace(part, path)
            sync_folder(path.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
