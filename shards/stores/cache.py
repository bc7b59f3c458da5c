"""The local folder in which parts of stores are kept: where it is, how large it may become, what goes first."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from viewkit.shards.errors import ConfigError
from viewkit.shards.files import PART, explained, make_folder
from viewkit.shards.stores.url import StoreURL

PLACE, LIMIT = "VIEWKIT_CACHE", "VIEWKIT_CACHE_GB"
DEFAULT_GB = 50.0
RECENT_NS = 60 * 10**9
SPARED = 1.25
"""Times the limit up to which what was used within `RECENT_NS` stays: it may be about to be opened."""
OWN = ".store"
"""Folder beside the one that stands for a dataset, for what may be deleted at any time: `SHARDS` and `LOCKS`."""
SHARDS, LOCKS = "shards", "locks"


def cache_folder() -> Path:
    """``$VIEWKIT_CACHE``, or viewkit/stores in the user's own cache folder."""
    asked = os.environ.get(PLACE)
    if asked:
        return Path(asked).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser().absolute() / "viewkit" / "stores"


def cache_limit() -> int:
    """Bytes that the shards of all datasets may take together. `ConfigError` for what is no size."""
    text = os.environ.get(LIMIT, str(DEFAULT_GB))
    try:
        size = float(text)
    except ValueError:
        size = -1.0
    if not 0 < size < 1e9:
        raise ConfigError(f"{LIMIT} is {text[:40]!r}; it must be a number of gigabytes above 0, e.g. {DEFAULT_GB:g}")
    return int(size * 1e9)


def folder_of(url: StoreURL) -> Path:
    """The folder that stands for a place in a store. It has the place's name, as pages show it."""
    return cache_folder() / url.digest / url.name


def own_folder(root: Path, *names: str) -> Path:
    """A folder for what is kept beside `root`, the folder that stands for a place."""
    folder = root.parent.joinpath(OWN, *names)
    make_folder(folder)
    return folder


def make_room(size: int, keep: Path) -> None:
    """Delete the shards that were longest unused, of any dataset, until `size` more bytes fit; never `keep`, nor what
    is being fetched, nor, up to `SPARED` times the limit, what was used a moment ago.

    A file that another process is reading goes on being there for that process; one that it is about to open may be
    gone, and is then brought again.
    """
    limit = cache_limit()
    if size > limit:
        raise ConfigError(f"{LIMIT} allows {limit} bytes, and {keep} alone takes {size}; allow more")
    found: list[tuple[int, int, str]] = []
    for path in cache_folder().glob(f"*/{OWN}/{SHARDS}/*/*"):
        with suppress(FileNotFoundError):
            facts = path.stat()
            found.append((facts.st_mtime_ns, facts.st_size, str(path)))
    total, recent = sum(each for _, each, _ in found), time.time_ns() - RECENT_NS
    for used, own, name in sorted(found):
        if total + size <= (limit if used < recent else SPARED * limit):
            return
        if name != str(keep) and not (name.endswith(PART) and used >= recent):
            Path(name).unlink(missing_ok=True)
            total -= own


@contextmanager
def alone(root: Path, name: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold `name` among all processes and threads of this machine; whether it is held (only False without `wait`)."""
    path = own_folder(root, LOCKS) / name.replace("/", "%")
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        held = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise
            held = False
        yield held
    finally:
        os.close(descriptor)
