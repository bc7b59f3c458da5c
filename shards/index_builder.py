"""Writes an index of a column's rows (`index`), receipt by receipt."""

from io import BufferedIOBase
from typing import Any

import numpy as np
import xxhash
from jaxtyping import UInt64

from viewkit.shards.document import canonical
from viewkit.shards.index import FIELDS, MAGIC, SHARD, SURROGATES, TAIL, key_hash
from viewkit.shards.receipt import Receipt


class IndexBuilder:
    """Writes an index, receipt by receipt in order; memory holds 16 bytes a row, of which the hashes are sorted."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self._stream, self._at = stream, 0
        self._numbers: dict[str, int] = {}
        self._table: list[tuple[Any, ...]] = []
        self._hashes: list[UInt64[np.ndarray, " n"]] = []
        self._rejects: list[list[Any]] = []
        self._rows = 0
        self._write(MAGIC)

    def add(self, receipt: Receipt, stamp: tuple[int, int]) -> None:
        """stamp: size and time of change (ns) of the receipt's file."""
        raw, keys = block_bytes(receipt, self._numbers)
        ordered = b"\0".join(keys)
        members = sum(len(row.members) for row in receipt.rows)
        own = xxhash.xxh3_64_intdigest(raw)
        same = xxhash.xxh3_128_digest(ordered)
        key_bytes = sum(map(len, keys))
        entry = (self._rows, receipt.seen, self._at, len(raw), own, members, key_bytes, same, receipt.bytes, *stamp)
        self._table.append(entry)
        self._hashes.append(np.array([key_hash(key) for key in keys], dtype="<u8"))
        self._rejects += [[receipt.shard, each.key, each.reason, each.detail] for _, each in receipt.rejects]
        self._rows += len(receipt.rows)
        self._write(raw)

    def finish(self, **about: Any) -> None:
        """about: JSON values for `RowIndex.about`."""
        hashes = np.concatenate([*self._hashes, np.array([], dtype="<u8")])
        places = np.argsort(hashes, kind="stable").astype("<i8")
        parts = {
            "table": np.array(self._table, dtype=SHARD).tobytes(),
            "hashes": hashes[places].astype("<u8").tobytes(),
            "places": places.tobytes(),
            "rejects": canonical(self._rejects),
        }
        where = {}
        for name, raw in parts.items():
            where[name] = [self._at, len(raw), xxhash.xxh3_64_intdigest(raw)]
            self._write(raw)
        counts = {"rows": self._rows, "shards": len(self._table), "extensions": list(self._numbers)}
        described = canonical({**about, **counts, **where})
        tail = TAIL.pack(self._at, len(described), xxhash.xxh3_64_intdigest(described), MAGIC)
        self._write(described + tail, align=False)

    def _write(self, raw: bytes, align: bool = True) -> None:
        padded = raw + bytes(-len(raw) % 8) if align else raw
        self._stream.write(padded)
        self._at += len(padded)


def block_bytes(receipt: Receipt, numbers: dict[str, int]) -> tuple[bytes, list[bytes]]:
    """The block of a receipt, and its keys. numbers: of extensions; grows by those it lacks."""
    keys = [row.key.encode("utf-8", SURROGATES) for row in receipt.rows]
    members = [
        (numbers.setdefault(name, len(numbers)), start - row.offset, size)
        for row in receipt.rows
        for name, (start, size) in row.members.items()
    ]
    columns = {
        "offset": [row.offset for row in receipt.rows],
        "size": [row.size for row in receipt.rows],
        "check": [int(row.check, 16) for row in receipt.rows],
        "member_start": [start for _, start, _ in members],
        "member_size": [size for _, _, size in members],
        "first_member": np.cumsum([0, *(len(row.members) for row in receipt.rows)]),
        "key_end": np.cumsum([0, *map(len, keys)]),
        "extension": [number for number, _, _ in members],
    }
    arrays = [np.array(columns[name], dtype=kind).tobytes() for name, kind, _ in FIELDS]
    return b"".join([*arrays, *keys]), keys
