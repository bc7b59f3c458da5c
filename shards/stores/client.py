"""Requests to a store, by obstore: each is repeated until it is answered or patience ends."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import explained
from viewkit.shards.stores.answers import explain, may_pass
from viewkit.shards.stores.environment import LONGEST_PAUSE_S, open_store, patience_s
from viewkit.shards.stores.url import StoreURL

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

RANGE_BYTES = 8 << 20
"""Of one request of a whole file, and of one part of an upload."""
AT_ONCE = 8
DELETED_AT_ONCE = 1000


class NotThere(Exception):
    """There is no object of this name."""


class SourceGone(DataError):
    """The local file that was to be sent is not there any more."""


@dataclass(frozen=True)
class Entry:
    """An object as a listing has it. size: in bytes. etag: unquoted; "" of a store that has none."""

    size: int
    etag: str


def unquoted(etag: str | None) -> str:
    """An ETag without its quotes, which Azure's listings leave out and its other answers have; "" for none."""
    return (etag or "").strip('"')


class Client:
    """Requests below one URL. Keys are relative to it. Every method raises `DataError` when patience ends, when the
    store refuses, or when there is no such bucket."""

    def __init__(self, url: StoreURL) -> None:
        self.url = url
        self._pid = os.getpid()
        self._opened: ObjectStore | None = None

    def list(self, below: str | None = None) -> dict[str, Entry]:
        """All objects below a folder, or below the URL, by key; perhaps none. A request for every 1,000."""

        def listed() -> dict[str, Entry]:
            import obstore

            return {
                each["path"]: Entry(each["size"], unquoted(each["e_tag"]))
                for chunk in obstore.list(self._store, below, chunk_size=1000)
                for each in chunk
            }

        return self._patiently(below or "", listed)

    def get(self, key: str) -> tuple[bytes, str]:
        """All bytes of an object, and its ETag. Raises `NotThere`."""

        def got() -> tuple[bytes, str]:
            import obstore

            answer = obstore.get(self._store, key)
            return bytes(answer.bytes()), unquoted(answer.meta["e_tag"])

        return self._patiently(key, got)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        """`size` bytes from byte `start` on, which must lie in the object. Raises `NotThere`."""

        def got() -> bytes:
            import obstore

            return bytes(obstore.get_range(self._store, key, start=start, length=size)) if size else b""

        return self._patiently(key, got)

    def head(self, key: str) -> Entry:
        """Size in bytes and ETag, without the content. Raises `NotThere`."""

        def looked() -> Entry:
            import obstore

            found = obstore.head(self._store, key)
            return Entry(found["size"], unquoted(found["e_tag"]))

        return self._patiently(key, looked)

    def fetch(self, key: str, size: int, path: Path) -> None:
        """Write an object of `size` bytes to `path`, several ranges at once. Raises `NotThere`.

        No range waits in a queue: the interpreter, when it ends, and who meets an error wait for all that was queued.
        """
        with explained(path), open(path, "wb") as file, ThreadPoolExecutor(AT_ONCE) as pool:

            def part(start: int) -> None:
                content = self.get_range(key, start, min(RANGE_BYTES, size - start))
                os.pwrite(file.fileno(), content, start)

            under_way: set[Future[None]] = set()
            for start in range(0, size, RANGE_BYTES):
                if len(under_way) == AT_ONCE:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    for each in done:
                        each.result()
                under_way.add(pool.submit(part, start))
            for each in under_way:
                each.result()

    def put(self, key: str, content: bytes | Path) -> str:
        """Write or replace an object; large ones in parts, which appear together. Returns the ETag.

        Raises `SourceGone` for a file that is not there.
        """
        return self._put(key, content, "overwrite")

    def create(self, key: str, content: bytes) -> tuple[bytes, str]:
        """Write an object unless there is one: of all who try, one is first. Returns what is there now, and its ETag.

        Who wrote it cannot be told by that: an answer may be lost after its request was carried out.
        """
        import obstore

        end = time.monotonic() + patience_s()
        while True:
            try:
                return content, self._put(key, content, "create")
            except obstore.exceptions.AlreadyExistsError:
                with suppress(NotThere):  # the store had two writers at once, and asks to try again
                    return self.get(key)
            if time.monotonic() > end:
                raise DataError(f"{self.url}/{key}: can neither be written nor read; run the same command again")
            time.sleep(0.2)

    def copy(self, source: str, target: str) -> None:
        """Copy inside the store, of at most 5 GB on S3, over what `target` is. Raises `NotThere` without a `source`."""

        def copied() -> None:
            import obstore

            obstore.copy(self._store, source, target)

        self._patiently(source, copied)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are not there are as good as deleted. S3 deletes many at once."""
        most = DELETED_AT_ONCE if self.url.scheme == "s3" else 1
        for start in range(0, len(keys), most):

            def deleted(part: Sequence[str] = keys[start : start + most]) -> None:
                import obstore

                obstore.delete(self._store, list(part))

            with suppress(NotThere):
                self._patiently(keys[start], deleted)

    def _put(self, key: str, content: bytes | Path, mode: Any) -> str:
        def done() -> str:
            import obstore

            multipart = False if mode == "create" else None
            try:
                answer = obstore.put(
                    self._store, key, content, mode=mode, use_multipart=multipart, chunk_size=RANGE_BYTES
                )
            except FileNotFoundError:  # obstore has one class for this and for what is not in the store
                if isinstance(content, Path) and not content.exists():
                    raise SourceGone(f"{content}: was deleted before it was sent; run the same command again") from None
                raise
            return unquoted(answer["e_tag"])

        return self._patiently(key, done)

    @property
    def _store(self) -> "ObjectStore":
        if self._pid != os.getpid():
            raise ConfigError(
                f"{self.url}: a process was forked after the store was opened, and connections do not survive that; "
                "start worker processes with 'spawn', e.g. DataLoader(..., multiprocessing_context='spawn')"
            )
        if self._opened is None:
            self._opened = open_store(self.url)
        return self._opened

    def _patiently(self, key: str, request: Callable[[], T]) -> T:
        """obstore repeats what a server or connection refused; here is repeated what broke off, up to the same end."""
        store = self._store
        import obstore

        del store
        end, pause = time.monotonic() + patience_s(), 0.1
        while True:
            try:
                return request()
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                    raise explain(self.url, key, str(error)) from None
                raise NotThere(key) from None
            except obstore.exceptions.AlreadyExistsError:
                raise
            except (obstore.exceptions.BaseError, OSError) as error:
                problem = explain(self.url, key, str(error))
                if time.monotonic() > end or not may_pass(str(error)):
                    raise problem from None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
