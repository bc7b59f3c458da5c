"""One column of a dataset: strict reading, row by row in any order or shard by shard."""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from io import BufferedIOBase, BufferedReader, FileIO
from pathlib import Path
from threading import Lock
from typing import Any

import xxhash

from viewkit.shards import schema
from viewkit.shards.commands import command_for
from viewkit.shards.document import canonical
from viewkit.shards.errors import DataError, MissingError
from viewkit.shards.files import explained, most_open_files
from viewkit.shards.identity import COLUMN, Identity, read_identity
from viewkit.shards.index import RowIndex
from viewkit.shards.index_builder import IndexBuilder
from viewkit.shards.index_file import Stamp, make_index, read_index, stamps_of
from viewkit.shards.receipt import (
    READY,
    Receipt,
    check_size,
    expected_bytes,
    find_tar,
    has_size,
    read_receipt,
    remedy_for,
    require_tar,
    shard_name,
    tar_path,
)
from viewkit.shards.row import Reject, Row
from viewkit.shards.schema import require
from viewkit.shards.spans import span, spanned
from viewkit.shards.stores.mounts import mirror_of
from viewkit.shards.tar import END

PLAN = {"shards": schema.whole(0, schema.MAX_SHARDS), "rows": schema.whole(0, schema.MAX_ROWS)}
RECEIPTS_KEPT = 4
"""Parsed receipts a column keeps; one of 1,024 rows takes a megabyte."""


@dataclass(frozen=True)
class Contents:
    """What one pass over all receipts leaves, or the index that an earlier pass left."""

    index: RowIndex
    unsettled: frozenset[int]
    """Shards whose tar still has the name of before its receipt; see `receipt.find_tar`."""


@dataclass(frozen=True)
class ShardFacts:
    """What a summary needs of a complete shard."""

    seen: int
    kept: int
    bytes: int
    rejects: Sequence[Reject]

    @classmethod
    def of(cls, receipt: Receipt) -> "ShardFacts":
        return cls(receipt.seen, len(receipt.rows), receipt.bytes, [reject for _, reject in receipt.rejects])


class Column:
    """A complete column: every planned shard has its receipt, else `DataError` says what is missing.

    Every read is checked against the receipt's checksum of the row, headers and padding included: a flipped bit or a
    cut is an error that names the shard, never other bytes or fewer rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self._open: OrderedDict[int, FileIO] = OrderedDict()
        self._receipts: OrderedDict[int, Receipt] = OrderedDict()
        self._lock = Lock()
        self._mirror = mirror_of(path)
        if self._mirror is not None:
            self._mirror.bring_receipts(path)

    @cached_property
    def identity(self) -> Identity:
        path = self.path / COLUMN
        if not path.is_file():
            raise DataError(f"{path}: missing; the column '{self.name}' was not written by viewkit or was moved")
        remedy = f"restore it from a copy, or delete {self.path} and rerun the stage"
        identity = read_identity(path, remedy)
        require(identity.plan, PLAN, path, remedy)
        return identity

    @property
    def num_shards(self) -> int:
        return self.identity.plan["shards"]

    @property
    def shards_before(self) -> list[int]:
        """Shards that the column had each time before it grew."""
        return [each.plan["shards"] for each in self.identity.earlier]

    def complete_shards(self) -> list[int]:
        """Shards whose receipt is there, in order."""
        return [shard for shard in range(self.num_shards) if (self.path / f"{shard_name(shard)}.json").exists()]

    def require_complete(self) -> None:
        """`DataError` when a shard is not written yet."""
        missing = sorted(set(range(self.num_shards)) - set(self.complete_shards()))
        if missing:
            command = command_for(self.name, self.identity.stage)
            raise MissingError(
                f"{self.path}: {len(missing)} of {self.num_shards} shards are not written yet "
                f"(first: {shard_name(missing[0])}); rerun '{command}', it goes on where it stopped"
            )

    def receipt(self, shard: int) -> Receipt:
        """Receipt of one shard; checked, and the tar beside it has the size it says."""
        with self._lock:
            kept = self._receipts.get(shard)
        if kept is not None:
            return kept
        receipt = read_receipt(self.path, shard, self.identity.digest_for(shard))
        require_tar(self.path, receipt)
        with self._lock:
            self._receipts[shard] = receipt
            if len(self._receipts) > RECEIPTS_KEPT:
                self._receipts.popitem(last=False)
        return receipt

    def receipts(self) -> Iterator[Receipt]:
        """Every receipt in order, one at a time."""
        self.require_complete()
        for shard in range(self.num_shards):
            yield self.receipt(shard)

    @cached_property
    @spanned("index")
    def contents(self) -> Contents:
        """One pass over all receipts, or the index of an earlier one; every tar is there and has its size.

        `DataError` when the receipts together do not account for every input.
        """
        try:
            stamps = stamps_of(self.path / f"{shard_name(shard)}.json" for shard in range(self.num_shards))
        except FileNotFoundError:
            self.require_complete()
            raise
        index = read_index(self.path, self.identity.digest, stamps)
        if index is None:
            index = make_index(self.path, stamps, lambda stream: self._write_index(stream, stamps))
            return Contents(index, self._unsettled())
        unsettled = self._unsettled()
        for shard, size in enumerate(index.table["tar_bytes"].tolist()):
            if shard in unsettled or not has_size(self.path, shard, size):
                self.receipt(shard)  # it says what is wrong
        return Contents(index, unsettled)

    def _unsettled(self) -> frozenset[int]:
        waiting = {int(path.name.partition(".")[0]) for path in self.path.glob(f"[0-9]*{READY}")}
        return frozenset(
            shard
            for shard in waiting
            if shard < self.num_shards and find_tar(self.path, self.receipt(shard)).suffix == READY
        )

    def _write_index(self, stream: BufferedIOBase, stamps: Sequence[Stamp]) -> None:
        builder = IndexBuilder(stream)
        states = [(each.plan["shards"], hashlib.sha256(each.identity.encode())) for each in self.identity.earlier]
        states.append((self.num_shards, hashlib.sha256(self.identity.digest.encode())))
        kept, seen = [0] * len(states), 0
        for receipt in self.receipts():
            seen += receipt.seen
            builder.add(receipt, stamps[receipt.shard])
            said = canonical(
                [receipt.sha256, [[place, reject.key, reject.reason] for place, reject in receipt.rejects]]
            )
            for number, (shards, hashed) in enumerate(states):
                if receipt.shard < shards:
                    hashed.update(said)
                    kept[number] += len(receipt.rows)
        if seen != self.identity.plan["rows"]:
            raise DataError(
                f"{self.path}: its receipts account for {seen} of {self.identity.plan['rows']} inputs; "
                f"run 'viewkit verify', or delete {self.path} and rerun 'viewkit {self.identity.stage}'"
            )
        *earlier, digest = [hashed.hexdigest() for _, hashed in states]
        before = dict(zip(earlier, kept, strict=False))
        builder.finish(identity=self.identity.digest, digest=digest, earlier=before)

    def facts(self, shards: Sequence[int]) -> Iterator[ShardFacts]:
        """Of complete shards; by the index where all are complete, without a look at the receipts."""
        if len(self.complete_shards()) < self.num_shards:
            yield from (ShardFacts.of(self.receipt(shard)) for shard in shards)
            return
        index = self.index
        rejected: dict[int, list[Reject]] = {}
        for shard, reject in index.rejected:
            rejected.setdefault(shard, []).append(reject)
        for shard in shards:
            entry = index.table[shard]
            yield ShardFacts(int(entry["seen"]), index.rows_of(shard), int(entry["tar_bytes"]), rejected.get(shard, []))

    @property
    def digest(self) -> str:
        """Digest of everything the column holds: its identity, every tar and every reject."""
        return self.index.digest

    @property
    def earlier(self) -> Mapping[str, int]:
        """Digest that the column had before it grew -> rows that it kept then; see `Identity.earlier`."""
        return self.index.about["earlier"] if self.identity.earlier else {}

    @property
    def index(self) -> RowIndex:
        return self.contents.index

    @property
    def rejects(self) -> dict[str, Reject]:
        return self.index.rejects

    @property
    def place_of(self) -> Mapping[str, int]:
        """Key -> index of the row."""
        return self.index.place_of

    @property
    def num_rows(self) -> int:
        return len(self.index)

    def keys(self) -> Sequence[str]:
        return self.index.keys

    def row(self, index: int) -> Row:
        """Row number `index`, by one positioned read."""
        return Row(self.index.keys[index], self.fields(index))

    def fields(self, index: int) -> dict[str, bytes]:
        """Extension -> bytes of row number `index`."""
        places = self.contents.index
        shard, block, row = places.find(index)
        size = block.size.item(row)
        with span("read"):
            offset, check = block.offset.item(row), block.check.item(row)
            raw = self._row_in_store(shard, offset, size)
            if raw is None or xxhash.xxh3_64_intdigest(raw) != check:
                file = self._file(shard)  # held: another thread's may take its place, and it would close
                raw = os.pread(file.fileno(), size, offset)
            if xxhash.xxh3_64_intdigest(raw) != check:
                raise self._damaged(shard, block.key(row))
        first, last = block.first_member.item(row), block.first_member.item(row + 1)
        names, numbers, starts, sizes = places.extensions, block.extension, block.member_start, block.member_size
        return {
            names[numbers.item(member)]: raw[(start := starts.item(member)) : start + sizes.item(member)]
            for member in range(first, last)
        }

    def rows(self, shard: int) -> Iterator[Row]:
        """Rows of one shard in order; the whole file is checked, down to the blocks that end it."""
        receipt = self.receipt(shard)
        path, position = tar_path(self.path, shard), 0
        with explained(path), BufferedReader(self._open_tar(receipt)) as file:
            for place in receipt.rows:
                raw = file.read(place.size)
                if place.offset != position or xxhash.xxh3_64_hexdigest(raw) != place.check:
                    raise self._damaged(shard, place.key)
                position += place.size
                starts = {name: (start - place.offset, size) for name, (start, size) in place.members.items()}
                yield Row(place.key, {name: raw[start : start + size] for name, (start, size) in starts.items()})
            if file.read() != END or expected_bytes(receipt.rows) != receipt.bytes:
                raise self._damaged(shard, "the end of the archive")

    def _damaged(self, shard: int, where: str) -> DataError:
        path = tar_path(self.path, shard)
        return DataError(f"{path}: damaged at {where}, its bytes do not match its receipt; {remedy_for(path)}")

    def _row_in_store(self, shard: int, offset: int, size: int) -> bytes | None:
        """A row of a dataset in a store, asked for alone while the cache does not have its shard; else None."""
        if self._mirror is None or shard in self._open or self._mirror.tars.is_whole(self.path, shard):
            return None
        self._mirror.tars.fetch_ahead(self.path, self.index.table["tar_bytes"].tolist(), self.receipt)
        return self._mirror.tars.row(self.path, shard, offset, size)

    def _file(self, shard: int) -> FileIO:
        """The shard's open file. Evicted files close when their last reader lets go, so threads may share a column."""
        with self._lock:
            file = self._open.get(shard)
            if file is not None:
                self._open.move_to_end(shard)
                return file
        size, path = int(self.index.table[shard]["tar_bytes"]), tar_path(self.path, shard)
        with explained(path):
            known = shard not in self.contents.unsettled and self._mirror is None
            file = FileIO(path) if known else self._open_tar(self.receipt(shard))
        if os.pread(file.fileno(), len(END) + 1, size - len(END)) != END:
            raise self._damaged(shard, "the end of the archive")
        with self._lock:
            self._open[shard] = file
            if len(self._open) > most_open_files():
                self._open.popitem(last=False)
        return file

    def _open_tar(self, receipt: Receipt) -> FileIO:
        """In a store, the cache may let a tar go between its arrival and its opening; it is then brought again."""
        if self._mirror is not None:
            with suppress(FileNotFoundError):
                return FileIO(check_size(self.path, receipt))
        return FileIO(check_size(self.path, receipt))

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "mirror": self._mirror}  # which mounts the path where it arrives

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]
