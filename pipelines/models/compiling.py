"""torch.compile with a cache of the user's own: what lies there is machine code that torch loads and runs."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from viewkit.shards.errors import DataError
from viewkit.shards.files import explained

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""torch's own; where it is set, it says where the cache lies. torch's default is a folder in /tmp with a name that any
user of the machine can guess, and make first."""
Function = TypeVar("Function", bound=Callable[..., Any])


def compile_privately(function: Function, **options: Any) -> Function:
    """`torch.compile(function, **options)`, with a private cache. Raises `DataError` where others may write to it."""
    if not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = str(private_folder(cache_folder()))
    found: Any = torch.compile(function, **options)
    return cast(Function, found)


def cache_folder() -> Path:
    """Below the user's cache folder; `DataError` for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "viewkit" / "compiled"
    except RuntimeError as error:
        raise DataError(f"--compile: this user has no home folder; set {VARIABLE} to a folder of your own") from error


def private_folder(path: Path) -> Path:
    """Create `path` for its user alone, or find it so: a folder, no link, of this user, that no other can write to."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise DataError(
            f"{path}: others may write to it or read it, and torch runs what lies there; delete it, or set {VARIABLE} "
            "to a folder of your own"
        )
    return path
