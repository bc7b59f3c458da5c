"""Writes one shard: bytes that depend on its rows alone, and a receipt as the last act."""

import hashlib
import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import xxhash

from viewkit.shards.errors import DataError
from viewkit.shards.files import explained, open_own, part_path, sync_folder
from viewkit.shards.receipt import READY, Receipt, RowPlace, read_receipt, ready_path, tar_path
from viewkit.shards.row import Reject, Row
from viewkit.shards.stores.mounts import mirror_of
from viewkit.shards.tar import END, row_bytes


class ShardWriter:
    """Context manager; `write` rows and rejects in the order of the inputs, `finish` makes the shard complete.

    Leaving the context without `finish` drops the part file. Raises `DataError` for a full disk and the like.
    """

    def __init__(self, folder: Path, shard: int, identity: str) -> None:
        self.folder, self.shard, self.identity = folder, shard, identity
        self.path = tar_path(folder, shard)
        self.part = part_path(self.path)
        self.rows: list[RowPlace] = []
        self.rejects: list[tuple[int, Reject]] = []
        self.bytes = 0
        self._sha256 = hashlib.sha256()
        with explained(self.path):
            self._file = open(self.part, "xb", buffering=1 << 20, opener=open_own)  # noqa: SIM115 closed by finish or __exit__

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._file.closed:
            with suppress(OSError):  # closing flushes, and fails again on a full disk; the reason is on its way already
                self._file.close()
            with suppress(OSError):
                self.part.unlink(missing_ok=True)

    def write(self, outcome: Row | Reject) -> None:
        if isinstance(outcome, Reject):
            self.rejects.append((len(self.rows) + len(self.rejects), outcome))
            return
        raw, places = row_bytes(outcome.key, outcome.fields)
        members = {name: (self.bytes + start, size) for name, (start, size) in places.items()}
        self.rows.append(RowPlace(outcome.key, self.bytes, len(raw), xxhash.xxh3_64_hexdigest(raw), members))
        self._append(raw)

    def finish(self) -> Receipt:
        """Make the shard complete; returns its receipt, another writer's where that one was first.

        Another writer may be at work on the same shard: a worker believed dead, a run on another machine. Whatever the
        order of their steps, the first receipt counts, and the tar it is about is the shard's.
        """
        receipt = self.seal()
        if not self.commit(receipt):
            return self.give_way(receipt)
        publish(self.folder, receipt)
        return receipt

    def seal(self) -> Receipt:
        """End the archive and make it durable under a name that tells its content. Returns the receipt to commit."""
        self._append(END)
        receipt = Receipt(
            column=self.folder.name,
            shard=self.shard,
            identity=self.identity,
            bytes=self.bytes,
            sha256=self._sha256.hexdigest(),
            rows=self.rows,
            rejects=self.rejects,
        )
        with explained(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            try:
                os.replace(self.part, ready_path(self.folder, self.shard, receipt.sha256))
            except FileNotFoundError as error:
                raise DataError(
                    f"{self.part}: removed by another run that writes the same column; wait for that one, or run the "
                    "same command again"
                ) from error
            sync_folder(self.folder)
        mirror = mirror_of(self.folder)
        if mirror is not None:
            mirror.tars.upload(ready_path(self.folder, self.shard, receipt.sha256), receipt.bytes)
        return receipt

    def commit(self, receipt: Receipt) -> bool:
        """Write the receipt, unless the shard has one; whether it was written."""
        return receipt.write(self.folder)

    def give_way(self, receipt: Receipt) -> Receipt:
        """Drop the tar of a receipt that came second; returns the one that was first."""
        first = read_receipt(self.folder, self.shard, self.identity)
        if first.sha256 != receipt.sha256:  # else it may be the first one's tar, on its way to its name
            _drop(self.folder, ready_path(self.folder, self.shard, receipt.sha256))
        return first

    def _append(self, raw: bytes) -> None:
        with explained(self.path):
            self._file.write(raw)
        self._sha256.update(raw)
        self.bytes += len(raw)


def publish(folder: Path, receipt: Receipt) -> None:
    """Give the tar of a committed receipt its name; does nothing where it has it."""
    mirror = mirror_of(folder)
    if mirror is not None:
        mirror.tars.publish(folder, receipt)
        return
    path = tar_path(folder, receipt.shard)
    with explained(path):
        try:
            os.replace(ready_path(folder, receipt.shard, receipt.sha256), path)
        except FileNotFoundError:  # another run has done it
            return
        sync_folder(folder)


def settle(folder: Path, shards: Collection[int], identity: str) -> None:
    """Finish what writers left that were killed right before or after their receipt.

    A tar whose receipt is there gets its name, one that came second is deleted. Without a receipt it stays: its writer
    may be about to commit it.
    """
    for path in _waiting(folder):
        found = OWN_READY.fullmatch(path.name)
        if found is None or int(found[1]) not in shards or not (folder / f"{found[1]}.json").exists():
            continue
        receipt = read_receipt(folder, int(found[1]), identity)
        if path == ready_path(folder, receipt.shard, receipt.sha256):
            publish(folder, receipt)
        else:
            _drop(folder, path)


def _waiting(folder: Path) -> list[Path]:
    """Finished tars that do not have their names yet; of a dataset in a store also those that are only there."""
    mirror = mirror_of(folder)
    elsewhere = [] if mirror is None else mirror.tars.waiting(folder)
    return sorted({*folder.glob(f"*{READY}"), *elsewhere})


def _drop(folder: Path, ready: Path) -> None:
    """Delete a tar that came second."""
    mirror = mirror_of(folder)
    if mirror is not None:
        mirror.tars.drop(ready)
    with explained(ready):
        ready.unlink(missing_ok=True)


OWN_READY = re.compile(rf"(\d{{6,}})\.tar\.[0-9a-f]{{16}}{re.escape(READY)}")
