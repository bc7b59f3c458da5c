"""Shards in a store: their tars are published in the steps of `shards.writer`, and read whole or a row at a time.

A tar is written under a name that tells its content (``000000.tar.DIGEST.ready``), then the receipt is created, then
the tar is copied to its final name inside the store: only ever the tar of the receipt gets that name.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from viewkit.shards.artifact import file_digest
from viewkit.shards.errors import DataError, ViewkitError
from viewkit.shards.files import explained, part_path
from viewkit.shards.receipt import READY, Receipt, ready_path, remedy_for, shard_name, tar_path
from viewkit.shards.stores.cache import SHARDS, alone, cache_limit, make_room, own_folder
from viewkit.shards.stores.client import Entry, NotThere, SourceGone

if TYPE_CHECKING:
    from viewkit.shards.stores.mirror import Mirror


class Tars:
    """The tars of a mirror's columns. Methods raise `DataError` as `Client` does."""

    def __init__(self, mirror: "Mirror") -> None:
        self._mirror = mirror
        self._ahead: set[Path] = set()

    def upload(self, ready: Path, size: int) -> None:
        """A finished tar, under the name that tells its content.

        Another process of this machine may write the same bytes under the same name, and take the file away when it
        publishes the shard, or drops it; then the shard has its receipt, and nothing is left to send.
        """
        key = self._mirror.key(ready)
        try:
            etag = self._mirror.client.put(key, ready)
        except SourceGone:
            if not (ready.parent / f"{ready.name.partition('.')[0]}.json").exists():
                raise
        else:
            self._mirror.note(key, Entry(size, etag))

    def publish(self, folder: Path, receipt: Receipt) -> None:
        """Give the tar of a committed receipt its name; where that has happened, nothing is done."""
        ready, final = ready_path(folder, receipt.shard, receipt.sha256), tar_path(folder, receipt.shard)
        source, target = self._mirror.key(ready), self._mirror.key(final)
        with suppress(NotThere):
            self._mirror.client.copy(source, target)
            self._mirror.note(target, Entry(receipt.bytes, ""))
            self._mirror.forget([source])
        if ready.exists():  # this machine wrote it: its next reader need not fetch it
            cached = self.cached(folder, receipt.shard)
            with explained(ready), suppress(FileNotFoundError):
                make_room(0, cached)
                os.replace(ready, cached)

    def drop(self, ready: Path) -> None:
        """Delete the tar of a receipt that came second."""
        self._mirror.forget([self._mirror.key(ready)])

    def waiting(self, folder: Path) -> list[Path]:
        """Finished tars in the store that do not have their names yet, as paths in the cache folder."""
        keys = [key for key in self._mirror.below(folder) if key.endswith(READY)]
        return [self._mirror.root / key for key in keys]

    def list_urls(self, folder: Path, num_shards: int) -> None:
        """Write the URLs of a complete column's tars into ``urls/COLUMN.txt``, one a line, in order."""
        there = self._mirror.below(folder)
        urls = []
        for shard in range(num_shards):
            if self._mirror.key(folder / f"{shard_name(shard)}.json") not in there:
                return
            urls.append(f"{self._mirror.url}/{self._mirror.key(tar_path(folder, shard))}\n")
        self._mirror.client.put(self.urls_key(folder), "".join(urls).encode())

    def urls_key(self, folder: Path) -> str:
        """Key of the list that `list_urls` writes."""
        return f"urls/{self._mirror.key(folder)}.txt"

    def size_of(self, folder: Path, shard: int, sha256: str | None = None) -> int | None:
        """Bytes of a tar as listed, -1 where there is none; None in a process that did not look."""
        listing = self._mirror.listing
        if listing is None:
            return None
        paths = [tar_path(folder, shard), *([ready_path(folder, shard, sha256)] if sha256 else [])]
        found = [listing[key].size for key in map(self._mirror.key, paths) if key in listing]
        return found[-1] if found else -1

    def require(self, folder: Path, receipt: Receipt) -> None:
        """`DataError` when the listing has no tar of the receipt's size."""
        size = self.size_of(folder, receipt.shard, receipt.sha256)
        if size not in (None, receipt.bytes):
            found = "is missing" if size == -1 else f"has {size} bytes and its receipt says {receipt.bytes}"
            path = tar_path(folder, receipt.shard)
            raise DataError(f"{path}: {found}; {remedy_for(path)}")

    def cached(self, folder: Path, shard: int) -> Path:
        """Where a whole shard is in the cache; the receipt's time of change (`Mirror`) tells which tar it is."""
        facts = os.stat(folder / f"{shard_name(shard)}.json")
        name = f"{shard_name(shard)}.{facts.st_mtime_ns:x}.tar"
        return own_folder(self._mirror.root, SHARDS, self._mirror.key(folder)) / name

    def whole(self, folder: Path, receipt: Receipt) -> Path:
        """The shard's tar in the cache, fetched and compared with its receipt when it was not there."""
        path = self.cached(folder, receipt.shard)
        with alone(self._mirror.root, f"{folder.name}%{receipt.shard}"):
            self._fetch(folder, receipt, path)
        return path

    def _fetch(self, folder: Path, receipt: Receipt, path: Path) -> None:
        with suppress(FileNotFoundError):
            os.utime(path)  # it counts as used
            if path.stat().st_size == receipt.bytes:
                return
        make_room(receipt.bytes, path)
        part = part_path(path)
        names = [tar_path(folder, receipt.shard), ready_path(folder, receipt.shard, receipt.sha256)]
        sizes = []
        try:
            for key in map(self._mirror.key, names):
                with suppress(NotThere):
                    sizes.append(size := self._mirror.client.head(key).size)
                    if size == receipt.bytes:
                        self._mirror.client.fetch(key, size, part)
                        if file_digest(part) == receipt.sha256:
                            os.replace(part, path)
                            return
        finally:
            part.unlink(missing_ok=True)
        found = "damaged in the store, its bytes do not match its receipt" if sizes else "is missing"
        raise DataError(f"{names[0]}: {found}; {remedy_for(names[0])}")

    def forget_cached(self, folder: Path, shard: int) -> None:
        """Delete a shard in the cache, so that the next reader fetches it again."""
        self.cached(folder, shard).unlink(missing_ok=True)

    def is_whole(self, folder: Path, shard: int) -> bool:
        """Whether the cache has the shard."""
        return self.cached(folder, shard).exists()

    def row(self, folder: Path, shard: int, offset: int, size: int) -> bytes | None:
        """The bytes of one row, by a request of their own; None where the shard's tar does not have its name yet."""
        with suppress(NotThere):
            return self._mirror.client.get_range(self._mirror.key(tar_path(folder, shard)), offset, size)
        return None

    def fetch_ahead(self, folder: Path, sizes: Sequence[int], read: Callable[[int], Receipt]) -> None:
        """Begin to bring the whole column into the cache, if that has room for it: in a thread of its own, each process
        of a machine in another order."""
        if folder in self._ahead or sum(sizes) > cache_limit():
            return
        self._ahead.add(folder)
        order = list(range(len(sizes)))
        Random(os.getpid()).shuffle(order)

        def bring() -> None:
            # Whoever reads the shard meets the same, and says it; a RuntimeError comes when the interpreter ends.
            with suppress(ViewkitError, OSError, RuntimeError):
                for shard in order:
                    receipt = read(shard)
                    with alone(self._mirror.root, f"{folder.name}%{shard}", wait=False) as held:
                        if held:
                            self._fetch(folder, receipt, self.cached(folder, shard))

        threading.Thread(target=bring, name="fetch-ahead", daemon=True).start()
