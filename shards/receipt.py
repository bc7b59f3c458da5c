"""A shard's receipt: the last thing written, and the proof that the shard is complete."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewkit.shards import schema
from viewkit.shards.document import read_document, write_first_document
from viewkit.shards.errors import DataError
from viewkit.shards.files import explained
from viewkit.shards.row import Reject
from viewkit.shards.schema import require
from viewkit.shards.stores.mounts import mirror_of
from viewkit.shards.tar import END


def shard_name(shard: int) -> str:
    return f"{shard:06d}"


@dataclass(frozen=True)
class RowPlace:
    """Where one row stands in its tar.

    offset, size: the bytes from its first header to the padding of its last member. check: XXH3-64 of these bytes, as
    16 hex digits. members: extension -> (start, size) of its data, counted from the beginning of the tar.
    """

    key: str
    offset: int
    size: int
    check: str
    members: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Receipt:
    """identity: digest of the column's identity. rejects: (position among the shard's inputs, reject)."""

    column: str
    shard: int
    identity: str
    bytes: int
    sha256: str
    rows: Sequence[RowPlace]
    rejects: Sequence[tuple[int, Reject]]

    @property
    def seen(self) -> int:
        return len(self.rows) + len(self.rejects)

    def keys(self) -> list[str]:
        """Keys of the shard's inputs, kept or rejected, in order."""
        rejects, kept = dict(self.rejects), iter(self.rows)
        return [rejects[place].key if place in rejects else next(kept).key for place in range(self.seen)]

    def write(self, folder: Path) -> bool:
        """Write it unless the shard has a receipt; whether it was written: the first receipt counts."""
        return write_first_document(folder / f"{shard_name(self.shard)}.json", self._content())

    def _content(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "shard": self.shard,
            "identity": self.identity,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "rows": [
                [
                    row.key,
                    row.offset,
                    row.size,
                    row.check,
                    {name: list(place) for name, place in row.members.items()},
                ]
                for row in self.rows
            ],
            "rejects": [[position, reject.key, reject.reason, reject.detail] for position, reject in self.rejects],
        }


FIELDS = {
    "column": schema.text,
    "shard": schema.whole(0, schema.MAX_SHARDS),
    "identity": schema.text,
    "bytes": schema.whole(0, schema.MAX_BYTES),
    "sha256": schema.text,
    "rows": schema.rows(
        schema.text,
        schema.whole(0, schema.MAX_BYTES),
        schema.whole(0, schema.MAX_BYTES),
        schema.checksum,
        schema.values(schema.pair_of_sizes),
    ),
    "rejects": schema.rows(schema.whole(0, schema.MAX_ROWS), schema.text, schema.text, schema.text),
}


def read_receipt(folder: Path, shard: int, identity: str) -> Receipt:
    """The receipt of `shard`; `DataError` when it is missing, damaged, or not of this column and identity."""
    path = folder / f"{shard_name(shard)}.json"
    remedy = f"delete it and rerun the stage that writes '{folder.name}'; the shard is then written anew"
    content = read_document(path, remedy)
    require(content, FIELDS, path, remedy)
    receipt = Receipt(
        column=content["column"],
        shard=content["shard"],
        identity=content["identity"],
        bytes=content["bytes"],
        sha256=content["sha256"],
        rows=[
            RowPlace(key, offset, size, check, {name: (start, length) for name, (start, length) in members.items()})
            for key, offset, size, check, members in content["rows"]
        ],
        rejects=[(position, Reject(key, reason, detail)) for position, key, reason, detail in content["rejects"]],
    )
    for row in receipt.rows:
        start, end = row.offset, row.offset + row.size
        if end > receipt.bytes or any(at < start or at + size > end for at, size in row.members.values()):
            raise DataError(f"{path}: damaged, its row {row.key} lies outside of the tar; {remedy}")
    if (receipt.column, receipt.shard) != (folder.name, shard):
        raise DataError(f"{path}: it is the receipt of {receipt.column}/{shard_name(receipt.shard)}; {remedy}")
    if receipt.identity != identity:
        raise DataError(f"{path}: it belongs to a column with another identity; {remedy}")
    return receipt


def tar_path(folder: Path, shard: int) -> Path:
    return folder / f"{shard_name(shard)}.tar"


def ready_path(folder: Path, shard: int, sha256: str) -> Path:
    """A finished tar's name until its receipt is there: two writers' tars never stand in each other's place."""
    return folder / f"{shard_name(shard)}.tar.{sha256[:16]}{READY}"


READY = ".ready"


def find_tar(folder: Path, receipt: Receipt) -> Path:
    """The receipt's tar; under its earlier name where its writer was stopped right after the receipt."""
    ready = ready_path(folder, receipt.shard, receipt.sha256)
    with explained(ready):
        return ready if ready.exists() else tar_path(folder, receipt.shard)


def check_size(folder: Path, receipt: Receipt) -> Path:
    """Path of the shard's tar; `DataError` when it is missing or has another size than the receipt says.

    Of a dataset in a store, the path in the cache: the tar is brought there.
    """
    mirror = mirror_of(folder)
    if mirror is not None:
        return mirror.tars.whole(folder, receipt)
    path = find_tar(folder, receipt)
    if not path.is_file():  # it may have got its final name this very moment
        path = tar_path(folder, receipt.shard)
    size = path.stat().st_size if path.is_file() else None
    if size != receipt.bytes:
        found = "is missing" if size is None else f"has {size} bytes and its receipt says {receipt.bytes}"
        raise DataError(f"{path}: {found}; {remedy_for(path)}")
    return path


def require_tar(folder: Path, receipt: Receipt) -> None:
    """`DataError` as of `check_size`; of a dataset in a store by the listing, without reading the tar."""
    mirror = mirror_of(folder)
    if mirror is None:
        check_size(folder, receipt)
    else:
        mirror.tars.require(folder, receipt)


def has_size(folder: Path, shard: int, size: int) -> bool:
    """Whether the shard's tar is there under its final name and has this size; of a store, as far as that is known."""
    mirror = mirror_of(folder)
    if mirror is not None:
        return mirror.tars.size_of(folder, shard) in (None, size)
    path = tar_path(folder, shard)
    return path.is_file() and path.stat().st_size == size


def remedy_for(tar: Path) -> str:
    """What to do about a damaged tar."""
    return (
        f"delete {tar.name.split('.')[0]}.json beside it and rerun the stage that writes '{tar.parent.name}'; "
        "only this shard is written anew"
    )


def expected_bytes(rows: Sequence[RowPlace]) -> int:
    """Size of a tar that holds `rows`: its rows without gaps, then the two empty blocks that end an archive."""
    return sum(row.size for row in rows) + len(END)
