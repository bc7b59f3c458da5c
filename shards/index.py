"""Where every row of a column is: one block a shard, as arrays, so that opening costs as much as there are shards.

The receipts are the truth; the index says the same in a form that is mapped into memory instead of parsed, shared by
all processes of a machine. Every part of it carries a checksum, which is compared when the part is first used.
"""

import json
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np
import xxhash
from jaxtyping import Bool, Int64, UInt16, UInt32, UInt64

from viewkit.shards.errors import DataError
from viewkit.shards.row import Reject

MAGIC = b"viewkit rows 1\n\0"
TAIL = struct.Struct("<QQQ16s")
"""Offset and size of the description at the end, its XXH3-64, `MAGIC`."""
SHARD = np.dtype(
    [
        ("first_row", "<i8"), ("seen", "<i8"), ("offset", "<i8"), ("size", "<i8"), ("check", "<u8"), ("members", "<i8"),
        ("key_bytes", "<i8"), ("keys", "V16"), ("tar_bytes", "<i8"), ("receipt_bytes", "<i8"), ("receipt_ns", "<i8"),
    ]
)  # fmt: skip
"""Of every shard: its first row; inputs; where its block is, its size and XXH3-64; members of all rows; bytes of all
keys; XXH3-128 of the keys in order; size of the tar; size and time of change of the receipt."""
BLOCKS_KEPT = 4096
SURROGATES = "surrogatepass"


@dataclass(frozen=True, slots=True)
class Block:
    """The n rows of one shard with m members in all; row i has the members first_member[i] ... first_member[i + 1]."""

    offset: Int64[np.ndarray, " n"]
    size: Int64[np.ndarray, " n"]
    check: UInt64[np.ndarray, " n"]
    member_start: Int64[np.ndarray, " m"]
    member_size: Int64[np.ndarray, " m"]
    first_member: UInt32[np.ndarray, " n+1"]
    key_end: UInt32[np.ndarray, " n+1"]
    extension: UInt16[np.ndarray, " m"]
    keys: bytes

    def key(self, row: int) -> str:
        return self.keys[self.key_end.item(row) : self.key_end.item(row + 1)].decode("utf-8", SURROGATES)


FIELDS = (
    ("offset", "<i8", 0), ("size", "<i8", 0), ("check", "<u8", 0), ("member_start", "<i8", 1),
    ("member_size", "<i8", 1), ("first_member", "<u4", 2), ("key_end", "<u4", 2), ("extension", "<u2", 1),
)  # fmt: skip
"""Arrays of a block in order: name, type, and 0: as long as the rows, 1: as the members, 2: as the rows and one."""


class Keys(Sequence[str]):
    """All keys in order, decoded when they are asked for."""

    def __init__(self, index: "RowIndex") -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, place: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: SupportsIndex | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        index = place.__index__()
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        _, block, row = self._index.find(index % len(self))
        return block.key(row)

    def __iter__(self) -> Iterator[str]:
        return (key for shard in range(self._index.num_shards) for key in self._index.keys_of(shard))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]


class Places(Mapping[str, int]):
    """Key -> row number, by the keys' XXH3-64 in order."""

    def __init__(self, index: "RowIndex") -> None:
        self._index = index

    def __getitem__(self, key: str) -> int:
        hashes, places = self._index.hashes
        wanted = key_hash(key.encode("utf-8", SURROGATES))
        at = int(np.searchsorted(hashes, np.uint64(wanted)))
        while at < len(hashes) and hashes.item(at) == wanted:
            place: int = places.item(at)
            if self._index.keys[place] == key:
                return place
            at += 1
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index.keys)

    def __len__(self) -> int:
        return len(self._index)


class RowIndex:
    """All rows of a column. content: what an `IndexBuilder` wrote, mapped or in memory. where: its file, for errors.

    Raises `DataError` where the description or the table of shards is not as it was written, and later for a block.
    """

    def __init__(self, content: memoryview, where: Path | None = None) -> None:
        self._content, self._where = content, where
        self._blocks: dict[int, Block] = {}
        if len(content) < len(MAGIC) + TAIL.size or bytes(content[: len(MAGIC)]) != MAGIC:
            raise self._damaged()
        offset, size, check, magic = TAIL.unpack(content[len(content) - TAIL.size :])
        described = bytes(content[offset : offset + size])
        if magic != MAGIC or len(described) != size or xxhash.xxh3_64_intdigest(described) != check:
            raise self._damaged()
        try:
            self.about: dict[str, Any] = json.loads(described)
            self.extensions: list[str] = [str(each) for each in self.about["extensions"]]
            self.num_shards, self._rows = int(self.about["shards"]), int(self.about["rows"])
            self.table = self._part("table", SHARD)
            if len(self.table) != self.num_shards:
                raise self._damaged()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged() from error
        self._firsts: list[int] = self.table["first_row"].tolist()
        self.keys, self.place_of = Keys(self), Places(self)

    def __len__(self) -> int:
        return self._rows

    @property
    def digest(self) -> str:
        return str(self.about["digest"])

    def find(self, row: int) -> tuple[int, Block, int]:
        """The shard of row number `row`, its block, and the row's place in it."""
        shard = bisect_right(self._firsts, row) - 1
        return shard, self.block(shard), row - self._firsts[shard]

    def shard_of(self, row: int) -> int:
        return bisect_right(self._firsts, row) - 1

    def rows_of(self, shard: int) -> int:
        end = self._firsts[shard + 1] if shard + 1 < self.num_shards else self._rows
        return end - self._firsts[shard]

    def keys_of(self, shard: int) -> list[str]:
        block = self.block(shard)
        ends = block.key_end.tolist()
        return [block.keys[start:end].decode("utf-8", SURROGATES) for start, end in pairwise(ends)]

    def block(self, shard: int) -> Block:
        found = self._blocks.get(shard)
        if found is None:
            found = self._read_block(shard)
            if len(self._blocks) >= BLOCKS_KEPT:
                self._blocks.clear()
            self._blocks[shard] = found
        return found

    def raw_block(self, shard: int) -> bytes:
        entry = self.table[shard]
        raw = bytes(self._content[int(entry["offset"]) : int(entry["offset"]) + int(entry["size"])])
        if xxhash.xxh3_64_intdigest(raw) != int(entry["check"]):
            raise self._damaged()
        return raw

    def _read_block(self, shard: int) -> Block:
        """Checked: whatever is inside, no row lies outside of its tar and no member outside of its row."""
        raw, entry = self.raw_block(shard), self.table[shard]
        rows = self.rows_of(shard)
        counts, at, arrays = (rows, int(entry["members"]), rows + 1), 0, {}
        try:
            for name, kind, of in FIELDS:
                arrays[name] = np.frombuffer(raw, kind, counts[of], at)
                at += arrays[name].nbytes
            block = Block(**arrays, keys=raw[at : at + int(entry["key_bytes"])])
        except ValueError as error:
            raise self._damaged() from error
        owner = np.repeat(np.arange(rows), np.diff(block.first_member.astype(np.int64)).clip(0))
        inside = (
            len(owner) == counts[1] and len(block.keys) == int(entry["key_bytes"])
            and bool((np.diff(block.key_end.astype(np.int64)) >= 0).all())
            and bool(((block.offset >= 0) & (block.size >= 0)).all())
            and bool((block.offset <= int(entry["tar_bytes"]) - block.size).all())
            and bool(((block.member_start >= 0) & (block.member_size >= 0)).all())
            and bool((block.member_start <= block.size[owner] - block.member_size).all())
            and bool((block.extension < len(self.extensions)).all())
        )  # fmt: skip
        if not inside:
            raise self._damaged()
        return block

    @cached_property
    def hashes(self) -> tuple[UInt64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
        """XXH3-64 of all keys, rising, and the rows that they are of."""
        return self._part("hashes", np.dtype("<u8")), self._part("places", np.dtype("<i8"))

    @cached_property
    def rejects(self) -> dict[str, Reject]:
        return {reject.key: reject for _, reject in self.rejected}

    @cached_property
    def rejected(self) -> list[tuple[int, Reject]]:
        """(shard, reject) of all."""
        listed = json.loads(bytes(self._part("rejects", np.dtype("u1"))))
        return [(shard, Reject(key, reason, detail)) for shard, key, reason, detail in listed]

    def has(self, extensions: Sequence[str]) -> Bool[np.ndarray, " n"]:
        """Whether each row has a member of one of these extensions."""
        found = np.zeros(self._rows, dtype=bool)
        for shard in range(self.num_shards):
            rows, _ = self._members_of(shard, extensions)
            found[rows] = True
        return found

    def member_sizes(self, extensions: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Key and bytes of every member of these extensions."""
        for shard in range(self.num_shards):
            rows, sizes = self._members_of(shard, extensions)
            block, first = self.block(shard), self._firsts[shard]
            yield from ((block.key(row - first), size) for row, size in zip(rows.tolist(), sizes.tolist(), strict=True))

    def _members_of(
        self, shard: int, extensions: Sequence[str]
    ) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]:
        """Rows and bytes of a shard's members of these extensions."""
        block = self.block(shard)
        numbers = [place for place, name in enumerate(self.extensions) if name in extensions]
        chosen = np.isin(block.extension, numbers)
        counts: Int64[np.ndarray, " n"] = np.diff(block.first_member.astype(np.int64))
        owner = np.repeat(np.arange(self.rows_of(shard)), counts)
        return owner[chosen] + self._firsts[shard], block.member_size[chosen]

    def _part(self, name: str, kind: np.dtype) -> np.ndarray:
        """A part that the description names: [offset, bytes, XXH3-64]."""
        offset, size, check = self.about[name]
        raw = self._content[offset : offset + size]
        if len(raw) != size or xxhash.xxh3_64_intdigest(raw) != check or size % kind.itemsize:
            raise self._damaged()
        found: np.ndarray = np.frombuffer(raw, kind)
        return found

    def _damaged(self) -> DataError:
        return DataError(f"{self._where}: damaged; delete it, and the next command makes it anew from the receipts")


def key_hash(key: bytes) -> int:
    return xxhash.xxh3_64_intdigest(key)
