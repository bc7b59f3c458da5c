"""Requests to a store, by obstore: each is repeated until it is answered or patience ends, and each error is one line.

Credentials come from the environment, where obstore looks for them as the stores' own tools do. They are in no error:
what a server says is not repeated, but for its status and the name of its code.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from viewkit.shards.errors import ConfigError, DataError, ViewkitError
from viewkit.shards.files import explained
from viewkit.shards.stores.url import StoreURL

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

PATIENCE, PATIENCE_S = "VIEWKIT_STORE_PATIENCE_S", 120.0
REQUEST_S = 30
"""One request that has no answer by then is given up and sent again."""
LONGEST_PAUSE_S = 5.0
RANGE_BYTES = 8 << 20
"""Of one request of a whole file, and of one part of an upload."""
AT_ONCE = 8

CREDENTIALS: Mapping[str, tuple[str, ...]] = {
    "s3": (
        "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE",
    ),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY",
           "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SKIP_SIGNATURE"),
    "az": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY",
           "AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_SKIP_SIGNATURE"),
}  # fmt: skip
"""Variables of which one says where credentials are; without any, only a machine of the provider's own has some."""
ENDPOINTS: Mapping[str, tuple[str, ...]] = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Variables that name another server than the provider's; one that begins with http:// is then used without TLS."""
OWN_MACHINE_S = 10.0
"""Patience with a machine of the provider's own, which is asked for credentials where the environment has none."""


class NotThere(Exception):
    """There is no object of this name."""


@dataclass(frozen=True)
class Entry:
    """An object as a listing has it."""

    size: int
    etag: str


class Client:
    """Requests below one URL. Keys are relative to it. Every method raises `DataError` when patience ends, when the
    store refuses, or when there is no such bucket."""

    def __init__(self, url: StoreURL) -> None:
        self.url = url
        self._pid = os.getpid()
        self._opened: ObjectStore | None = None

    def list(self, below: str | None = None) -> dict[str, Entry]:
        """All objects below a folder, by key."""

        def listed() -> dict[str, Entry]:
            import obstore

            return {
                each["path"]: Entry(each["size"], each["e_tag"] or "")
                for chunk in obstore.list(self._store, below, chunk_size=1000)
                for each in chunk
            }

        return self._patiently(below or "", listed)

    def get(self, key: str) -> tuple[bytes, str]:
        """Content and ETag. Raises `NotThere`."""

        def got() -> tuple[bytes, str]:
            import obstore

            answer = obstore.get(self._store, key)
            return bytes(answer.bytes()), answer.meta["e_tag"] or ""

        return self._patiently(key, got)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        """Raises `NotThere`."""

        def got() -> bytes:
            import obstore

            return bytes(obstore.get_range(self._store, key, start=start, length=size)) if size else b""

        return self._patiently(key, got)

    def head(self, key: str) -> Entry:
        """Raises `NotThere`."""

        def looked() -> Entry:
            import obstore

            found = obstore.head(self._store, key)
            return Entry(found["size"], found["e_tag"] or "")

        return self._patiently(key, looked)

    def fetch(self, key: str, size: int, path: Path) -> None:
        """Write an object of `size` bytes to `path`, several ranges at once. Raises `NotThere`."""
        with explained(path), open(path, "wb") as file, ThreadPoolExecutor(AT_ONCE) as pool:

            def part(start: int) -> None:
                content = self.get_range(key, start, min(RANGE_BYTES, size - start))
                os.pwrite(file.fileno(), content, start)

            for each in [pool.submit(part, start) for start in range(0, size, RANGE_BYTES)]:
                each.result()

    def put(self, key: str, content: bytes | Path) -> str:
        """Write or replace an object; large ones in parts, which appear together. Returns the ETag."""
        return self._put(key, content, "overwrite")

    def create(self, key: str, content: bytes) -> tuple[bytes, str]:
        """Write an object unless there is one. Returns what is there now and its ETag: of all who try, one is first.

        An answer may be lost after its request was carried out; then what is there is one's own content.
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
        """Copy inside the store. Raises `NotThere`."""

        def copied() -> None:
            import obstore

            obstore.copy(self._store, source, target)

        self._patiently(source, copied)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are not there are as good as deleted."""
        for key in keys:

            def deleted(key: str = key) -> None:
                import obstore

                obstore.delete(self._store, key)

            with suppress(NotThere):
                self._patiently(key, deleted)

    def _put(self, key: str, content: bytes | Path, mode: Any) -> str:
        def done() -> str:
            import obstore

            multipart = False if mode == "create" else None
            answer = obstore.put(self._store, key, content, mode=mode, use_multipart=multipart, chunk_size=RANGE_BYTES)
            return answer["e_tag"] or ""

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


def patience_s() -> float:
    """``$VIEWKIT_STORE_PATIENCE_S``: for how long a request is repeated. `ConfigError` for what is no time."""
    text = os.environ.get(PATIENCE, str(PATIENCE_S))
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= 86400:
        raise ConfigError(f"{PATIENCE} is {text[:40]!r}; it must be a number of seconds above 0, e.g. {PATIENCE_S:g}")
    return found


def has_credentials(scheme: str) -> bool:
    return any(os.environ.get(name) for name in CREDENTIALS[scheme])


def open_store(url: StoreURL) -> "ObjectStore":
    """obstore's object; it sends nothing yet. `ConfigError` where obstore is missing or the environment is not usable."""
    try:
        from obstore import exceptions, store
    except ImportError:
        raise ConfigError(
            f"{url}: stores take the package obstore; pip install '.[cloud]', where viewkit's source is"
        ) from None
    wait = patience_s() if has_credentials(url.scheme) else min(patience_s(), OWN_MACHINE_S)
    retry: Any = {
        "max_retries": 1000,
        "retry_timeout": timedelta(seconds=wait),
        "backoff": {
            "init_backoff": timedelta(seconds=0.1),
            "max_backoff": timedelta(seconds=LONGEST_PAUSE_S),
            "base": 2,
        },
    }
    plain = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS[url.scheme])
    client: Any = {"timeout": timedelta(seconds=REQUEST_S), **({"allow_http": True} if plain else {})}
    kinds: dict[str, Any] = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
    try:
        opened: ObjectStore = kinds[url.scheme](
            url.bucket, prefix=url.prefix, client_options=client, retry_config=retry
        )
    except (exceptions.BaseError, ValueError, OSError):  # it may repeat what it read
        raise ConfigError(
            f"{url}: the environment does not say how to reach the store; docs/stores.md lists the variables for {url.scheme}://"
        ) from None
    return opened


STATUS = re.compile(r"status code: (\d{3})")
CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")


def may_pass(text: str) -> bool:
    """Whether a request that failed like this may work later: no answer, or one that asks for patience."""
    status = STATUS.search(text)
    return "credential" not in text.lower() and (
        status is None or int(status[1]) >= 500 or status[1] in ("408", "409", "429")
    )


def explain(url: StoreURL, key: str, text: str) -> ViewkitError:
    """What happened and what to do, without a word of the server's but the name of its code."""
    where = f"{url}/{key}" if key else str(url)
    status, code = STATUS.search(text), CODE.search(text)
    said = " ".join(each[1] for each in (status, code) if each)
    if "NoSuchBucket" in text or "ContainerNotFound" in text:
        return DataError(f"{url}: there is no bucket '{url.bucket}'; create it, or correct the name")
    if not has_credentials(url.scheme) and status is None:
        return ConfigError(
            f"{url}: no credentials in the environment, and this is no machine that the store knows; set "
            f"{CREDENTIALS[url.scheme][0]} and what belongs to it (docs/stores.md)"
        )
    if status is not None and status[1] in ("401", "403"):
        return DataError(
            f"{where}: the store refuses it ({said}); check the credentials in the environment, and that they may list, "
            "read and write there"
        )
    if status is not None and not may_pass(text):
        return DataError(f"{where}: the store answers {said}; docs/stores.md says what a store must be able to do")
    answered = f"answers {said}" if said else "does not answer"
    return DataError(
        f"{where}: the store {answered}, for {patience_s():g} s ({PATIENCE}); check the network and the endpoint in the "
        "environment, and run the same command again, nothing finished is lost"
    )
