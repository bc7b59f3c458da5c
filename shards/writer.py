"""Writes one shard: bytes that depend on its rows alone, and a receipt as the last act."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import xxhash

from viewkit.shards.files import explained, open_own, part_path, sync_folder
from viewkit.shards.receipt import Receipt, RowPlace, shard_name
from viewkit.shards.row import Reject, Row
from viewkit.shards.tar import END, row_bytes


class ShardWriter:
    """Context manager; `write` rows and rejects in the order of the inputs, `finish` makes the shard complete.

    Leaving the context without `finish` drops the part file. Raises `DataError` for a full disk and the like.
    """

    def __init__(self, folder: Path, shard: int, identity: str) -> None:
        self.folder, self.shard, self.identity = folder, shard, identity
        self.path = folder / f"{shard_name(shard)}.tar"
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
        """End the archive, make it durable under its final name, then write the receipt."""
        self._append(END)
        with explained(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self.part, self.path)
            sync_folder(self.folder)
        receipt = Receipt(
            column=self.folder.name,
            shard=self.shard,
            identity=self.identity,
            bytes=self.bytes,
            sha256=self._sha256.hexdigest(),
            rows=self.rows,
            rejects=self.rejects,
        )
        receipt.write(self.folder)
        return receipt

    def _append(self, raw: bytes) -> None:
        with explained(self.path):
            self._file.write(raw)
        self._sha256.update(raw)
        self.bytes += len(raw)
