"""A place in a store and the cache folder that stands for it.

Keys in the store are the paths that a local dataset has, so a copy of one is the other. What counts is the store: a
document is created there first, and then in the cache. Small documents (identities, receipts) are brought when
the dataset is opened, everything else when it is read.
"""

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from viewkit.shards.artifact import IDENTITY, RECEIPT
from viewkit.shards.errors import ConfigError
from viewkit.shards.files import explained, make_folder, part_path, read_file, write_first
from viewkit.shards.identity import COLUMN
from viewkit.shards.stores.artifacts import ArtifactFiles
from viewkit.shards.stores.cache import cache_limit, folder_of, own_folder
from viewkit.shards.stores.client import Client, Entry, NotThere
from viewkit.shards.stores.environment import patience_s
from viewkit.shards.stores.mounts import MOUNTED
from viewkit.shards.stores.stale import delete_work, is_before, is_replaced
from viewkit.shards.stores.tars import Tars
from viewkit.shards.stores.url import StoreURL, parse_url

DOCUMENT = re.compile(rf"(.+/)?({COLUMN}|{IDENTITY}|{RECEIPT})|experiments/[^/]+\.json")
SHARD_RECEIPT = re.compile(r"[^/]+/\d{6,}\.json")
AT_ONCE = 16
TOKEN = "token"
STAMPS_NS = 10**18


class Mirror:
    """root: the cache folder. Travels to other processes as its URL; those of this machine find in the cache what this
    one brought."""

    def __init__(self, url: StoreURL, root: Path) -> None:
        self.url, self.root = url, root
        self.client = Client(url)
        self.listing: dict[str, Entry] | None = None
        """All keys as of the last `refresh`, and what this process wrote since; None in a process that did not look."""
        self.tars = Tars(self)
        self.artifacts = ArtifactFiles(self)
        self._brought: set[str] = set()
        self._writable = False

    def __reduce__(self) -> tuple[object, tuple[str, str, str]]:
        return arrive, (str(self.url), str(self.root), self.token())

    def token(self) -> str:
        """Of this cache folder, so that a process on another machine, whose folder is another one, knows it."""
        path = own_folder(self.root) / TOKEN
        write_first(path, secrets.token_hex(16).encode())
        return read_file(path).decode()

    def key(self, path: Path) -> str:
        """Of a file or folder in the cache folder; "" of that folder itself."""
        name = path.relative_to(self.root).as_posix()
        return "" if name == "." else name

    def refresh(self) -> None:
        """Look at what is there now: bring identities, and forget what is gone, with the work that belonged to it."""
        make_folder(self.root)
        began = time.time()
        listing = self.client.list()
        for path in self._identities():
            if (entry := listing.get(self.key(path))) is not None and not self._has(self.key(path), entry):
                self._replace(path, entry, began)
        self.bring([key for key in listing if DOCUMENT.fullmatch(key)], listing)
        for path in self._identities():
            if self.key(path) not in listing and is_before(path, began):
                self._forget_work(path.parent, began)
        for path in self.root.rglob("*.json"):
            key = self.key(path)
            known = DOCUMENT.fullmatch(key) or SHARD_RECEIPT.fullmatch(key)
            if known and key not in listing and is_before(path, began):
                path.unlink(missing_ok=True)
        self.listing = listing
        self._brought.clear()

    def _identities(self) -> list[Path]:
        """Of columns and artifacts in the cache."""
        return sorted(path for name in (COLUMN, IDENTITY) for path in self.root.glob(f"*/**/{name}"))

    def _replace(self, path: Path, listed: Entry, began: float) -> None:
        """Bring an identity that changed, and before it delete what was made under another one."""
        with suppress(NotThere, FileNotFoundError):  # gone since it was listed
            content, etag = self.client.get(self.key(path))
            if is_replaced(path.read_bytes(), content):
                self._forget_work(path.parent, began)
            self._keep(path, content, listed.etag or etag)

    def _forget_work(self, folder: Path, began: float) -> None:
        delete_work(folder, began)
        self.artifacts.forget_note(folder)

    def bring_receipts(self, folder: Path) -> None:
        """The receipts of a column, as of the last `refresh`; in a process that did not look, another one has."""
        name = self.key(folder)
        if self.listing is None or name in self._brought:
            return
        keys = [key for key in self.listing if key.startswith(f"{name}/") and SHARD_RECEIPT.fullmatch(key)]
        self.bring(keys, self.listing)
        self._brought.add(name)

    def bring(self, keys: Iterable[str], listing: dict[str, Entry]) -> None:
        """Bring documents that the cache does not have as they are listed, several at once; one that is gone since is
        left out."""
        wanted = [key for key in keys if not self._has(key, listing[key])]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda key: self._bring(key, listing[key]), wanted))

    def _has(self, key: str, entry: Entry) -> bool:
        try:
            facts = os.stat(self.root / key)
        except FileNotFoundError:
            return False
        return bool(entry.etag) and (facts.st_size, facts.st_mtime_ns) == (entry.size, stamp(entry.etag))

    def _bring(self, key: str, listed: Entry) -> None:
        """The listing's ETag counts, as it is compared with the next listing's."""
        with suppress(NotThere):  # gone since it was listed
            content, etag = self.client.get(key)
            self._keep(self.root / key, content, listed.etag or etag)

    def create(self, path: Path, content: bytes) -> bool:
        """Write a document unless there is one; whether what is there now says the same. The cache then has that."""
        key = self.key(path)
        there, etag = self.client.create(key, content)
        self._keep(path, there, etag)
        return there == content

    def put(self, path: Path, content: bytes) -> None:
        """Write or replace a document, in the store and then in the cache."""
        self._keep(path, content, self.client.put(self.key(path), content))

    def _keep(self, path: Path, content: bytes, etag: str) -> None:
        """The time of change of a document in the cache is a digest of its ETag, so it tells whether it is up to date,
        on all machines alike."""
        part = part_path(path)
        with explained(path):
            make_folder(path.parent)
            part.write_bytes(content)
            os.utime(part, ns=(stamp(etag), stamp(etag)))
            os.replace(part, path)
        self.note(self.key(path), Entry(len(content), etag))

    def note(self, key: str, entry: Entry | None) -> None:
        """Keep `listing` true to what this process wrote or (None) deleted."""
        if self.listing is not None:
            if entry is None:
                self.listing.pop(key, None)
            else:
                self.listing[key] = entry

    def below(self, folder: Path) -> dict[str, Entry]:
        """Keys below a folder, asked for now: worker processes and other machines write there, too."""
        name = self.key(folder)
        found = self.client.list(name)
        if self.listing is not None:
            others = {key: entry for key, entry in self.listing.items() if not key.startswith(f"{name}/")}
            self.listing = {**others, **found}
            self._brought.discard(name)
        return found

    def forget(self, keys: Sequence[str]) -> None:
        """Delete objects, in this order; the cache's copies are the caller's."""
        self.client.delete(keys)
        for key in keys:
            self.note(key, None)

    def forget_folder(self, folder: Path) -> None:
        """Delete everything below a folder, its identity last, so that a broken off deletion can be repeated."""
        self.forget(sorted(self.below(folder), key=lambda key: (key.endswith((COLUMN, IDENTITY)), key)))

    def require_conditions(self) -> None:
        """`ConfigError` for a store that writes over an object although it was told not to: two writers of one shard
        would both believe to be first."""
        if self._writable:
            return
        name = f".probe-{secrets.token_hex(8)}"
        try:
            self.client.create(name, b"first")
            there, _ = self.client.create(name, b"second")
        finally:
            self.client.delete([name])
        if there != b"first":
            raise ConfigError(
                f"{self.url}: the store ignores the condition If-None-Match (it wrote over an object that was there), "
                "so two writers could damage a dataset; docs/stores.md names stores that follow it"
            )
        self._writable = True


def stamp(etag: str) -> int:
    """A time of change that stands for an ETag: nanoseconds since 1970, before 2001."""
    return int.from_bytes(hashlib.sha256(etag.encode()).digest()[:8], "big") % STAMPS_NS


def open_mirror(place: str | Path) -> Mirror:
    """Mount the place and look at it. Raises `ConfigError` for a URL or environment that cannot be used, `DataError`
    where the store does not answer or refuses."""
    url = parse_url(place)
    cache_limit(), patience_s()  # what is wrong with them is said now, not at the first shard
    mirror = mount(str(url), str(folder_of(url)))
    mirror.refresh()
    return mirror


def arrive(url: str, root: str, token: str) -> Mirror:
    """The mirror in a process to which it was sent; on another machine it has to look for itself."""
    mirror = mount(url, root)
    if mirror.listing is None and mirror.token() != token:
        mirror.refresh()
    return mirror


def mount(url: str, root: str) -> Mirror:
    """The mirror of this process for a place."""
    folder = Path(root)
    if folder not in MOUNTED:
        MOUNTED[folder] = Mirror(parse_url(url), folder)
    return MOUNTED[folder]
