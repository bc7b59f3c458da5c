"""Artifacts in a store: their files are published as shards are, and unfinished work is kept for other machines."""

import os
import tarfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from viewkit.shards.artifact import IDENTITY, RECEIPT, file_digest
from viewkit.shards.errors import DataError
from viewkit.shards.files import PART, explained, make_folder, part_path
from viewkit.shards.receipt import READY
from viewkit.shards.stores.cache import alone, own_folder
from viewkit.shards.stores.client import NotThere

if TYPE_CHECKING:
    from viewkit.shards.stores.mirror import Mirror

UNFINISHED = "unfinished.tar"
"""Object beside an identity: what the folder held when work was last saved, all at one moment."""
SHARE = 0.05
"""Most of the time that saving unfinished work may take."""
AT_ONCE = 4


class ArtifactFiles:
    """The files of a mirror's artifacts. Methods raise `DataError` as `Client` does."""

    def __init__(self, mirror: "Mirror") -> None:
        self._mirror = mirror
        self._next_s = 0.0

    def publish(self, folder: Path, digests: Mapping[str, str]) -> None:
        """Upload the files under names that tell their content. digests: SHA-256 by name in the folder."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            sent = [
                pool.submit(self._mirror.client.put, self._ready(folder, name, sha256), folder / name)
                for name, sha256 in digests.items()
            ]
            for each in sent:
                each.result()

    def settle(self, folder: Path, digests: Mapping[str, str]) -> None:
        """Give the files of a committed receipt their names, and delete what was kept until then."""
        there = self._mirror.below(folder)
        for name, sha256 in digests.items():
            ready = self._ready(folder, name, sha256)
            if ready in there:
                with suppress(NotThere):  # another process has done it
                    self._mirror.client.copy(ready, self._mirror.key(folder / name))
        own = f"{self._mirror.key(folder)}/"
        left = [key for key in there if key.endswith(READY) or key == own + UNFINISHED]
        self._mirror.forget([key for key in left if self._is_own(folder, key)])

    def bring(self, folder: Path, name: str, size: int, sha256: str) -> None:
        """Bring a file into the cache as its receipt has it. size: in bytes. sha256: 64 hex digits.

        `DataError` where the store has no file of this name and size whose digest is this one.
        """
        path = folder / name
        with alone(self._mirror.root, self._mirror.key(path)):
            if path.is_file() and path.stat().st_size == size and file_digest(path) == sha256:
                return
            part = part_path(path)
            make_folder(path.parent)
            try:
                for key in (self._mirror.key(path), self._ready(folder, name, sha256)):
                    with suppress(NotThere):
                        if self._mirror.client.head(key).size == size:
                            self._mirror.client.fetch(key, size, part)
                            if file_digest(part) == sha256:
                                os.replace(part, path)
                                return
            finally:
                part.unlink(missing_ok=True)
        raise DataError(f"{path}: missing or damaged in the store; restore it, or delete {folder} and rerun its stage")

    def forget_cached(self, path: Path) -> None:
        """Delete a file in the cache, so that the next reader fetches it again."""
        path.unlink(missing_ok=True)

    def keep_unfinished(self, folder: Path, leave_out: Sequence[str]) -> None:
        """Put everything in the folder into one object, so that whoever goes on finds a state that belongs together.

        Does nothing while the last time it took more than `SHARE` of the time since.
        """
        began = time.monotonic()
        if began < self._next_s:
            return
        part = part_path(own_folder(self._mirror.root) / UNFINISHED)
        try:
            with explained(part), tarfile.open(part, "w") as tar:
                for path in _work(folder, leave_out):
                    tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
            etag = self._mirror.client.put(f"{self._mirror.key(folder)}/{UNFINISHED}", part)
            self._note(folder).write_text(etag)
        finally:
            part.unlink(missing_ok=True)
        took = time.monotonic() - began
        self._next_s = began + took / SHARE

    def bring_unfinished(self, folder: Path) -> bool:
        """What the folder held when work was last saved; whether there is anything.

        Where this machine was the last to save, the cache has the same or newer work, and is left as it is.
        """
        key = f"{self._mirror.key(folder)}/{UNFINISHED}"
        part = part_path(own_folder(self._mirror.root) / UNFINISHED)
        with alone(self._mirror.root, key):
            try:
                found, note = self._mirror.client.head(key), self._note(folder)
                if found.etag and note.is_file() and note.read_text() == found.etag and _work(folder, ()):
                    return True
                self._mirror.client.fetch(key, found.size, part)
                with explained(folder), tarfile.open(part) as tar:
                    tar.extractall(folder, filter="data")
                note.write_text(found.etag)
            except NotThere:
                return False
            except tarfile.TarError as error:
                raise DataError(f"{folder}/{UNFINISHED}: damaged; delete it, and the stage begins anew") from error
            finally:
                part.unlink(missing_ok=True)
        return True

    def forget_note(self, folder: Path) -> None:
        """Forget which unfinished work is here, so that what the store has counts, and nothing in the cache."""
        self._note(folder).unlink(missing_ok=True)

    def _note(self, folder: Path) -> Path:
        """Keeps the ETag of the unfinished work that this machine saved or fetched last."""
        return own_folder(self._mirror.root) / f"{self._mirror.key(folder).replace('/', '%')}.unfinished"

    def _ready(self, folder: Path, name: str, sha256: str) -> str:
        return f"{self._mirror.key(folder)}/{name}.{sha256[:16]}{READY}"

    def _is_own(self, folder: Path, key: str) -> bool:
        """Not of an artifact that lies in this one."""
        above = (self._mirror.root / key).parents
        return not any((each / IDENTITY).exists() for each in above if folder in each.parents)


def _work(folder: Path, leave_out: Sequence[str]) -> list[Path]:
    nested = {path.parent for path in folder.rglob(IDENTITY)} - {folder}
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix != PART
        and path.name not in (IDENTITY, RECEIPT)
        and path.relative_to(folder).parts[0] not in leave_out
        and not nested & set(path.parents)
    ]
