"""Folders in a store that others wrote: sources of `pack`, and weights. Files are brought when they are needed."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from viewkit.shards.errors import DataError
from viewkit.shards.files import make_folder, part_path
from viewkit.shards.stores.cache import SHARDS, alone, folder_of, make_room, own_folder
from viewkit.shards.stores.client import Client, Entry, NotThere
from viewkit.shards.stores.mirror import stamp
from viewkit.shards.stores.mounts import FOLDERS
from viewkit.shards.stores.url import StoreURL, parse_url

T = TypeVar("T")
AT_ONCE = 16
WEIGHTS = (".json", ".txt", ".safetensors")
"""Endings of what is brought of a folder of weights: never a pickle, and never code."""


class StoredFolder:
    """root: the path that stands for it; nothing lies there. Travels to other processes as its URL."""

    def __init__(self, url: StoreURL) -> None:
        self.url, self.root = url, folder_of(url)
        self.client = Client(url)

    def __reduce__(self) -> tuple[object, tuple[StoreURL]]:
        return mount_folder, (self.url,)

    def listing(self, only: str | None = None) -> dict[str, Entry]:
        """Files by path, hidden ones left out; only: of one file alone, which is asked for without the others."""
        if only is not None:
            with suppress(NotThere):
                return {only: self.client.head(only)}
            return {}
        return {
            key: entry
            for key, entry in self.client.list().items()
            if not any(part.startswith(".") for part in key.split("/")) and not key.endswith("/")
        }

    def local_file(self, path: str) -> str:
        """A whole file in the cache. It may be deleted there when it was not used for long, and is brought again."""
        try:
            entry = self.client.head(path)
            name = f"{stamp(f'{path} {entry.etag} {entry.size}'):x}{Path(path).suffix}"
            kept = own_folder(self.root, SHARDS, "files") / name
            with alone(self.root, name):
                if not kept.exists() or kept.stat().st_size != entry.size:
                    make_room(entry.size, kept)
                    part = part_path(kept)
                    try:
                        self.client.fetch(path, entry.size, part)
                        os.replace(part, kept)
                    finally:
                        part.unlink(missing_ok=True)
                os.utime(kept)
        except NotThere:
            raise DataError(f"{self.url}/{path}: is no longer there; run the same command again") from None
        return str(kept)

    def read(self, path: str) -> bytes:
        """All bytes of a file. Raises `FileNotFoundError`, as a local one would."""
        try:
            return self.client.get(path)[0]
        except NotThere:
            raise FileNotFoundError(2, "it is no longer there") from None


def mount_folder(url: StoreURL) -> StoredFolder:
    """The folder of this process for a place; `mounts.local_file` then knows it."""
    folder = StoredFolder(url)
    return FOLDERS.setdefault(str(folder.root), folder)


def read_ahead(read: Callable[[int], T], places: Sequence[int]) -> Iterator[T]:
    """What `read` gives for every place, in order, several at once: each waits for an answer of the store."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for place in places:
                waiting.append(pool.submit(read, place))
                if len(waiting) >= 2 * AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()


def bring_weights(place: str | Path) -> Path:
    """A folder of weights in the cache, of files of the kinds `WEIGHTS`; they stay until they are deleted by hand.

    `DataError` where there are none.
    """
    url = parse_url(place)
    client, root = Client(url), folder_of(url)
    wanted = {key: entry for key, entry in client.list().items() if key.endswith(WEIGHTS)}
    if not wanted:
        raise DataError(f"{url}: there are no weights ({', '.join(WEIGHTS)}); correct the URL, or copy them there")
    with alone(root, "weights"):
        for key, entry in wanted.items():
            path, changed = root / key, stamp(entry.etag)
            if path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (entry.size, changed):
                continue
            make_folder(path.parent)
            part = part_path(path)
            try:
                client.fetch(key, entry.size, part)
                os.utime(part, ns=(changed, changed))
                os.replace(part, path)
            except NotThere:
                raise DataError(f"{url}/{key}: is no longer there; run the same command again") from None
            finally:
                part.unlink(missing_ok=True)
    return root
