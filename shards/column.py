"""One column of a dataset: strict reading, row by row in any order or shard by shard."""

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from io import FileIO
from pathlib import Path
from threading import Lock

import xxhash

from viewkit.shards.document import digest
from viewkit.shards.errors import DataError
from viewkit.shards.identity import Identity, read_identity
from viewkit.shards.index import RowIndex, build_index
from viewkit.shards.receipt import (
    Receipt,
    check_size,
    expected_bytes,
    read_receipt,
    remedy_for,
    shard_name,
)
from viewkit.shards.row import Reject, Row
from viewkit.shards.tar import END

OPEN_SHARDS = 256
"""Open files a reader keeps; the least recently used is closed."""


class Column:
    """A whole column: every planned shard has its receipt, else `DataError` says what is missing.

    Every read is checked against the receipt's checksum of the row, headers and padding included: a flipped bit or a
    cut is an error that names the shard, never other bytes or fewer rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self._open: OrderedDict[int, FileIO] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def identity(self) -> Identity:
        path = self.path / "column.json"
        if not path.is_file():
            raise DataError(f"{path}: missing; the column '{self.name}' was not written by viewkit or was moved")
        return read_identity(path, f"restore it from a copy, or delete {self.path} and rerun the stage")

    @property
    def num_shards(self) -> int:
        return self.identity.plan["shards"]

    def whole_shards(self) -> list[int]:
        """Shards whose receipt is there, in order."""
        return [shard for shard in range(self.num_shards) if (self.path / f"{shard_name(shard)}.json").exists()]

    def receipt(self, shard: int) -> Receipt:
        """Receipt of one shard; checked, and the tar beside it has the size it says."""
        receipt = read_receipt(self.path, shard, self.identity.digest)
        check_size(self.path, receipt)
        return receipt

    def require_whole(self) -> None:
        """`DataError` when a shard is not written yet."""
        missing = sorted(set(range(self.num_shards)) - set(self.whole_shards()))
        if missing:
            raise DataError(
                f"{self.path}: {len(missing)} of {self.num_shards} shards are not written yet "
                f"(first: {shard_name(missing[0])}); rerun 'viewkit {self.identity.stage}', it goes on where it stopped"
            )

    @cached_property
    def receipts(self) -> Sequence[Receipt]:
        self.require_whole()
        return [self.receipt(shard) for shard in range(self.num_shards)]

    @cached_property
    def digest(self) -> str:
        """Digest of everything the column holds: its identity, every tar and every reject."""
        content = [
            [receipt.sha256, [[place, reject.key, reject.reason] for place, reject in receipt.rejects]]
            for receipt in self.receipts
        ]
        return digest([self.identity.digest, content])

    @cached_property
    def index(self) -> RowIndex:
        return build_index(self.receipts)

    @cached_property
    def place_of(self) -> dict[str, int]:
        """Key -> index of the row."""
        return {key: index for index, key in enumerate(self.index.keys)}

    @property
    def num_rows(self) -> int:
        return len(self.index)

    def keys(self) -> Sequence[str]:
        return self.index.keys

    @cached_property
    def rejects(self) -> dict[str, Reject]:
        return {reject.key: reject for receipt in self.receipts for _, reject in receipt.rejects}

    def row(self, index: int) -> Row:
        """Row number `index`, by one positioned read."""
        places = self.index
        return Row(places.keys[index], self.fields(index))

    def fields(self, index: int) -> dict[str, bytes]:
        """Extension -> bytes of row number `index`."""
        places = self.index
        shard, size = places.shard.item(index), places.size.item(index)
        file = self._file(shard)
        raw = os.pread(file.fileno(), size, places.offset.item(index))
        if xxhash.xxh3_64_intdigest(raw) != places.check.item(index):
            raise self._damaged(shard, places.keys[index])
        first, last = places.first_member.item(index), places.first_member.item(index + 1)
        names, numbers, starts, sizes = (
            places.extensions,
            places.extension,
            places.member_start,
            places.member_size,
        )
        return {
            names[numbers.item(member)]: raw[(start := starts.item(member)) : start + sizes.item(member)]
            for member in range(first, last)
        }

    def rows(self, shard: int) -> Iterator[Row]:
        """Rows of one shard in order; the whole file is checked, down to the blocks that end it."""
        receipt = self.receipts[shard]
        path = check_size(self.path, receipt)
        position = 0
        with open(path, "rb") as file:
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
        path = self.path / f"{shard_name(shard)}.tar"
        return DataError(f"{path}: damaged at {where}, its bytes do not match its receipt; {remedy_for(path)}")

    def _file(self, shard: int) -> FileIO:
        """The shard's open file. Evicted files close when their last reader lets go, so threads may share a column."""
        with self._lock:
            file = self._open.get(shard)
            if file is not None:
                self._open.move_to_end(shard)
                return file
        receipt = self.receipts[shard]
        file = FileIO(check_size(self.path, receipt))
        if os.pread(file.fileno(), len(END) + 1, receipt.bytes - len(END)) != END:
            raise self._damaged(shard, "the end of the archive")
        with self._lock:
            self._open[shard] = file
            if len(self._open) > OPEN_SHARDS:
                self._open.popitem(last=False)
        return file

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]
