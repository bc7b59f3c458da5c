"""Which local folders are caches of places in stores. Code that works on paths asks here; no store is imported.

A dataset that is opened by its URL mounts its cache folder, also in worker processes, to which it travels as its URL.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from viewkit.shards.stores.url import with_two_slashes

if TYPE_CHECKING:
    from viewkit.shards.stores.folder import StoredFolder
    from viewkit.shards.stores.mirror import Mirror

MOUNTED: "dict[Path, Mirror]" = {}


FOLDERS: "dict[str, StoredFolder]" = {}
"""Folders of stores that others wrote, by the path that stands for each."""


def local_file(root: str, path: str) -> str:
    """Where a file below `root` can be opened: there, or in the cache where `root` stands for a folder of a store."""
    folder = FOLDERS.get(root)
    return os.path.join(root, path) if folder is None else folder.local_file(path)


def mirror_of(path: Path) -> "Mirror | None":
    """The mirror whose cache folder `path` lies in, or is; None of a plain local path."""
    if not MOUNTED:
        return None
    return next((MOUNTED[folder] for folder in (path, *path.parents) if folder in MOUNTED), None)


def list_urls(folder: Path, num_shards: int) -> None:
    """Write the list of a complete column's tars into the store."""
    mirror = mirror_of(folder)
    if mirror is not None:
        mirror.tars.list_urls(folder, num_shards)


def forget_folder(folder: Path) -> None:
    """Delete everything below `folder` in the store; the cache is the caller's."""
    mirror = mirror_of(folder)
    if mirror is not None:
        mirror.forget_folder(folder)


def bring_unfinished(folder: Path) -> None:
    """Bring unfinished work that a machine kept in the store, see `Run.keep`; `DataError` where that is damaged."""
    mirror = mirror_of(folder)
    if mirror is not None:
        mirror.artifacts.bring_unfinished(folder)


def settle_artifact(folder: Path, digests: Mapping[str, str]) -> None:
    """Finish what the writer of a complete artifact left that was killed right after its receipt."""
    mirror = mirror_of(folder)
    if mirror is not None:
        mirror.artifacts.settle(folder, digests)


def in_words(text: str) -> str:
    """`text` with cache folders replaced by the URLs that they stand for, and with both slashes of URLs."""
    for folder, mirror in MOUNTED.items():
        text = text.replace(str(folder), str(mirror.url))
    for root, stored in FOLDERS.items():
        text = text.replace(root, str(stored.url))
    return with_two_slashes(text)
