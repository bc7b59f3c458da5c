"""`verify`: reads every byte of a dataset and says what is not as it was written."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import xxhash

from viewkit.shards.artifact import IDENTITY, RECEIPT, Artifact, of_another
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, ViewkitError
from viewkit.shards.files import read_file
from viewkit.shards.identity import COLUMN
from viewkit.shards.index_builder import block_bytes
from viewkit.shards.index_file import index_path, read_index, stamps_of
from viewkit.shards.receipt import Receipt, check_size, expected_bytes, find_tar, read_receipt, remedy_for, shard_name
from viewkit.shards.sources import check_alignment
from viewkit.shards.spool import SPOOL
from viewkit.shards.stores.mounts import mirror_of
from viewkit.shards.tar import END, row_bytes
from viewkit.shards.tensors import check_tensors


@dataclass(frozen=True)
class Finding:
    """What was checked, how many bytes of it were read and, where it is not intact, the problem in one line."""

    subject: str
    checked_bytes: int
    problem: str | None = None


def verify(dataset: Dataset) -> Iterator[Finding]:
    """One finding per shard, per alignment of a column, and per file of an artifact. Nothing on disk is changed,
    but for an index that opening a column may leave."""
    yield from verify_folders(dataset.path)
    unharmed = []
    for name in dataset.columns():
        findings = list(verify_column(dataset.column(name)))
        yield from findings
        if all(finding.problem is None for finding in findings):
            unharmed.append(name)
    for name in unharmed:
        if name != "images" and "images" in unharmed:
            pair = dataset.column("images"), dataset.column(name)
            yield _found(f"{name}: keys agree with images", partial(_read_alignment, *pair))
    for name in dataset.artifacts():
        findings = list(verify_artifact(dataset.artifact(name)))
        yield from findings
        if all(finding.problem is None for finding in findings) and dataset.artifact(name).is_complete:
            unharmed.append(name)
    for name in unharmed:
        if dataset.has_inputs(name):
            yield _found(f"{name}: made from what is here", partial(_read_inputs, dataset, name))


def verify_folders(path: Path) -> Iterator[Finding]:
    """Folders that hold shards or a receipt but do not say what they are, or cannot be looked into."""
    unlistable: list[OSError] = []
    for folder, _, names in os.walk(path, onerror=unlistable.append):
        named = {COLUMN, IDENTITY} & set(names)
        owned = [name for name in names if name == RECEIPT or name.endswith(".tar")]
        if owned and not named:
            yield Finding(
                os.path.relpath(folder, path),
                0,
                f"{folder}: holds {sorted(owned)[0]} but neither {COLUMN} nor {IDENTITY}; restore it from a copy, "
                "or delete the folder and rerun the stage",
            )
    for error in unlistable:
        yield Finding(os.path.relpath(str(error.filename), path), 0, f"{error.filename}: {error.strerror}")


def verify_column(column: Column) -> Iterator[Finding]:
    identity = _found(f"{column.name}/{COLUMN}", partial(_read_column_identity, column))
    yield identity
    if identity.problem is not None:
        return
    keys: set[str] = set()
    seen, damaged = 0, False
    for shard in range(column.num_shards):
        finding = _found(f"{column.name}/{shard_name(shard)}", partial(_read_shard, column, shard, keys))
        yield finding
        damaged |= finding.problem is not None
        seen += 0 if finding.problem else column.receipt(shard).seen
    if not damaged:
        yield _found(f"{column.name}: every input accounted for", partial(_compare_counts, column, seen))
        if index_path(column.path).exists():
            yield _found(f"{column.name}: index agrees with receipts", partial(_read_row_index, column))
    expected = {f"{shard_name(shard)}{end}" for shard in range(column.num_shards) for end in (".tar", ".json")}
    if not damaged:
        expected |= {find_tar(column.path, column.receipt(shard)).name for shard in range(column.num_shards)}
    for path in _files_in(column.path):
        if path.name not in expected | {COLUMN} and path.suffix != SPOOL:
            yield Finding(f"{column.name}/{path.name}", 0, f"{path}: does not belong to the column; move it away")


def _files_in(folder: Path) -> list[Path]:
    """What lies in a column; of a dataset in a store, what lies there."""
    mirror = mirror_of(folder)
    return sorted(folder.iterdir() if mirror is None else (mirror.root / key for key in mirror.below(folder)))


def verify_artifact(artifact: Artifact) -> Iterator[Finding]:
    if not (artifact.folder / RECEIPT).exists():
        problem = _found("", partial(_read_artifact_identity, artifact)).problem
        yield Finding(f"{artifact.name}: unfinished", 0, problem)
        for path in sorted(artifact.folder.rglob("*.safetensors")):  # what the stage will go on from
            if not of_another(path, artifact.folder):
                name = path.relative_to(artifact.folder).as_posix()
                yield _found(f"{artifact.name}/{name}", partial(check_tensors, path))
        return
    receipt = _found(f"{artifact.name}/{RECEIPT}", partial(_read_artifact_receipt, artifact))
    yield receipt
    if receipt.problem is None:
        for file in artifact.files:
            yield _found(f"{artifact.name}/{file}", partial(_read_artifact_file, artifact, file))


def _found(subject: str, read: Callable[[], int]) -> Finding:
    try:
        return Finding(subject, read())
    except ViewkitError as error:
        return Finding(subject, 0, str(error))


def _read_column_identity(column: Column) -> int:
    assert column.identity
    return (column.path / COLUMN).stat().st_size


def _compare_counts(column: Column, seen: int) -> int:
    wanted = column.identity.plan["rows"]
    if seen != wanted:
        raise DataError(
            f"{column.path}: its receipts account for {seen} of {wanted} inputs; delete {column.path} and rerun "
            f"'viewkit {column.identity.stage}'"
        )
    return 0


def _read_row_index(column: Column) -> int:
    """Every block says what its receipt says. An index that is damaged or no longer true is not used by anybody."""
    stamps = stamps_of(column.path / f"{shard_name(shard)}.json" for shard in range(column.num_shards))
    index = read_index(column.path, column.identity.digest, stamps)
    if index is None:
        return 0
    numbers = {name: number for number, name in enumerate(index.extensions)}
    for shard in range(column.num_shards):
        if index.raw_block(shard) != block_bytes(column.receipt(shard), numbers)[0]:
            raise DataError(
                f"{index_path(column.path)}: says something else about shard {shard_name(shard)} than its receipt; "
                "delete it, and the next command makes it anew"
            )
    return index_path(column.path).stat().st_size


def _read_shard(column: Column, shard: int, keys: set[str]) -> int:
    """Bytes of tar and receipt, which must agree in every bit; `keys` are those of the shards before and grow."""
    receipt_path = column.path / f"{shard_name(shard)}.json"
    if not receipt_path.exists():
        raise DataError(f"{receipt_path}: missing, the shard is not written; rerun 'viewkit {column.identity.stage}'")
    receipt = read_receipt(column.path, shard, column.identity.digest_for(shard))
    mirror = mirror_of(column.path)
    if mirror is not None:
        mirror.tars.forget_cached(column.path, shard)
    path = check_size(column.path, receipt)
    raw = read_file(path)
    if hashlib.sha256(raw).hexdigest() != receipt.sha256:
        raise DataError(
            f"{path}: damaged{_where(receipt, raw)}, its bytes do not match its receipt; {remedy_for(path)}"
        )
    position = 0
    for place in receipt.rows:
        if place.offset != position or place.key in keys:
            raise DataError(f"{path}: row {place.key} overlaps another or stands twice; {remedy_for(path)}")
        keys.add(place.key)
        position += place.size
        fields = {name: raw[start : start + size] for name, (start, size) in place.members.items()}
        if row_bytes(place.key, fields)[0] != raw[place.offset : place.offset + place.size]:
            raise DataError(f"{path}: row {place.key} is not where its receipt says; {remedy_for(path)}")
    places = [position for position, _ in receipt.rejects]
    if (
        expected_bytes(receipt.rows) != len(raw)
        or places != sorted(set(places))
        or max(places, default=0) > receipt.seen
    ):
        raise DataError(f"{receipt_path}: does not account for all of its tar and inputs; {remedy_for(path)}")
    return len(raw) + receipt_path.stat().st_size


def _where(receipt: Receipt, raw: bytes) -> str:
    for place in receipt.rows:
        if xxhash.xxh3_64_hexdigest(raw[place.offset : place.offset + place.size]) != place.check:
            return f" at {place.key}"
    return " at the end of the archive" if raw[-len(END) :] != END else ""


def _read_inputs(dataset: Dataset, name: str) -> int:
    dataset.check_inputs(name)
    return 0


def _read_alignment(first: Column, other: Column) -> int:
    check_alignment(first, other)
    return 0


def _read_artifact_identity(artifact: Artifact) -> int:
    assert artifact.identity
    return (artifact.folder / IDENTITY).stat().st_size


def _read_artifact_receipt(artifact: Artifact) -> int:
    assert artifact.receipt
    return sum((artifact.folder / name).stat().st_size for name in (IDENTITY, RECEIPT))


def _read_artifact_file(artifact: Artifact, file: str) -> int:
    mirror = mirror_of(artifact.folder)
    if mirror is not None:
        mirror.artifacts.forget_cached(artifact.folder / file)
    return artifact.path(file).stat().st_size
