"""`verify`: reads every byte of a dataset and says what is not as it was written."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import xxhash

from viewkit.shards.artifact import Artifact
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, ViewkitError
from viewkit.shards.receipt import Receipt, check_size, read_receipt, remedy_for, shard_name
from viewkit.shards.sources import check_alignment
from viewkit.shards.tar import END, row_bytes


@dataclass(frozen=True)
class Finding:
    """What was looked at, how many bytes of it were read and, where it is not whole, the problem in one line."""

    subject: str
    checked_bytes: int
    problem: str | None = None


def verify(dataset: Dataset) -> Iterator[Finding]:
    """One finding a shard, a column's alignment and an artifact's file. Nothing on disk is changed."""
    unharmed = []
    for name in dataset.columns():
        findings = list(verify_column(dataset.column(name)))
        yield from findings
        if all(finding.problem is None for finding in findings):
            unharmed.append(dataset.column(name))
    if unharmed and unharmed[0].name == "images":
        for other in unharmed[1:]:
            yield _found(f"{other.name}: keys agree with images", partial(_read_alignment, unharmed[0], other))
    for name in dataset.artifacts():
        yield from verify_artifact(dataset.artifact(name))


def verify_column(column: Column) -> Iterator[Finding]:
    identity = _found(f"{column.name}/column.json", partial(_read_column_identity, column))
    yield identity
    if identity.problem is not None:
        return
    for shard in range(column.num_shards):
        yield _found(f"{column.name}/{shard_name(shard)}", partial(_read_shard, column, shard))
    expected = {f"{shard_name(shard)}{end}" for shard in range(column.num_shards) for end in (".tar", ".json")}
    for path in sorted(column.path.iterdir()):
        if path.name not in expected | {"column.json"}:
            yield Finding(f"{column.name}/{path.name}", 0, f"{path}: does not belong to the column; move it away")


def verify_artifact(artifact: Artifact) -> Iterator[Finding]:
    receipt = _found(f"{artifact.name}/receipt.json", partial(_read_artifact_receipt, artifact))
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
    return (column.path / "column.json").stat().st_size


def _read_shard(column: Column, shard: int) -> int:
    receipt_path = column.path / f"{shard_name(shard)}.json"
    if not receipt_path.exists():
        raise DataError(f"{receipt_path}: missing, the shard is not written; rerun 'viewkit {column.identity.stage}'")
    receipt = read_receipt(column.path, shard, column.identity.digest)
    path = check_size(column.path, receipt)
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != receipt.sha256:
        raise DataError(
            f"{path}: damaged{_where(receipt, raw)}, its bytes do not match its receipt; {remedy_for(path)}"
        )
    for place in receipt.rows:
        fields = {name: raw[start : start + size] for name, (start, size) in place.members.items()}
        if row_bytes(place.key, fields)[0] != raw[place.offset : place.offset + place.size]:
            raise DataError(f"{path}: row {place.key} is not where its receipt says; {remedy_for(path)}")
    return len(raw) + receipt_path.stat().st_size


def _where(receipt: Receipt, raw: bytes) -> str:
    for place in receipt.rows:
        if xxhash.xxh3_64_hexdigest(raw[place.offset : place.offset + place.size]) != place.check:
            return f" at {place.key}"
    return " at the end of the archive" if raw[-len(END) :] != END else ""


def _read_alignment(first: Column, other: Column) -> int:
    check_alignment(first, other)
    return 0


def _read_artifact_receipt(artifact: Artifact) -> int:
    assert artifact.receipt
    return sum((artifact.folder / name).stat().st_size for name in ("artifact.json", "receipt.json"))


def _read_artifact_file(artifact: Artifact, file: str) -> int:
    return artifact.path(file).stat().st_size
