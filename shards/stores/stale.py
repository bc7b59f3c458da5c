"""Work in the cache whose identity in the store is gone, or another one now: nothing may go on with it."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from viewkit.shards.artifact import IDENTITY
from viewkit.shards.files import explained
from viewkit.shards.identity import COLUMN

NAMES = (COLUMN, IDENTITY)
CLOCK_S = 0.1
"""Coarser than the clock of a file system."""


def is_before(path: Path, moment: float) -> bool:
    """Whether a file is there and is older than a look at the store: what another process has just written is not."""
    try:
        return path.lstat().st_ctime < moment - CLOCK_S
    except FileNotFoundError:
        return False


def is_replaced(found: bytes, now: bytes) -> bool:
    """Whether the identity in one document is another than in the other, which has not grown from it either.

    Of a damaged document nothing is known; who reads it says so.
    """
    before, after = _states(found), _states(now)
    return bool(before and after) and before[-1] not in after


def delete_work(folder: Path, began: float) -> None:
    """Delete what lies in a folder of the cache and is older than `began`, but for its identity, and for columns and
    artifacts that lie in it."""
    nested = {path.parent for name in NAMES for path in folder.rglob(name)} - {folder}
    with explained(folder):
        for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder comes before it
            if nested & {path, *path.parents}:
                continue
            if path.is_dir() and not path.is_symlink():
                with suppress(OSError):  # not empty
                    path.rmdir()
            elif path not in [folder / name for name in NAMES] and is_before(path, began):
                path.unlink(missing_ok=True)


def _states(raw: bytes) -> list[Any]:
    """Digests of what a column was before it grew, and of what it is; none of what is no identity."""
    try:
        content = json.loads(raw)
        return [*(each["identity"] for each in content.get("earlier", [])), content["identity"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
