"""Where a map stage's rows come from: columns of the dataset, or whatever `pack` reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from viewkit.shards.column import Column
from viewkit.shards.commands import command_for
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, MissingError
from viewkit.shards.receipt import shard_name
from viewkit.shards.row import Reject, Row


@runtime_checkable
class Sources(Protocol):
    """Inputs of a map stage, cut into shards. Pickled once into every worker, so it holds no open files or pixels."""

    @property
    def num_shards(self) -> int: ...

    @property
    def num_rows(self) -> int:
        """Inputs in all shards."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines a person should see before the work starts, e.g. how many files were left out."""
        ...

    def keys(self, shard: int) -> Sequence[str]:
        """Keys of the shard's inputs, in order."""
        ...

    def rows(self, shard: int) -> Iterator[Row | Reject]:
        """The shard's inputs in order. What cannot even be read is a reject, and the stage never sees it."""
        ...


class ColumnSources:
    """Rows of the first column, joined with the same rows of the others.

    A row that another column rejected has ``None`` there; a row that it neither holds nor rejected is a `DataError`.
    """

    def __init__(self, dataset: Dataset, columns: Sequence[str], notes: tuple[str, ...] = ()) -> None:
        if not columns:
            raise ConfigError("a map stage reads at least one column")
        self.notes = notes
        self.first, *self.others = [dataset.column(name) for name in columns]
        self.first.require_complete()
        for other in self.others:
            check_alignment(self.first, other)

    @property
    def num_shards(self) -> int:
        return self.first.num_shards

    @property
    def num_rows(self) -> int:
        return self.first.num_rows

    def keys(self, shard: int) -> Sequence[str]:
        return [place.key for place in self.first.receipt(shard).rows]

    def rows(self, shard: int) -> Iterator[Row]:
        joined = {column.name: {row.key: row.fields for row in column.rows(shard)} for column in self.others}
        for row in self.first.rows(shard):
            others: Mapping[str, Mapping[str, bytes] | None] = {
                name: fields.get(row.key) for name, fields in joined.items()
            }
            yield Row(row.key, row.fields, others)


class InputsOf:
    """What one column was given: its rows, and in their places the inputs that it rejected, as it rejected them."""

    notes: tuple[str, ...] = ()

    def __init__(self, column: Column) -> None:
        column.require_complete()
        self.column = column

    @property
    def num_shards(self) -> int:
        return self.column.num_shards

    @property
    def num_rows(self) -> int:
        return self.column.identity.plan["rows"]

    def keys(self, shard: int) -> Sequence[str]:
        return self.column.receipt(shard).keys()

    def rows(self, shard: int) -> Iterator[Row | Reject]:
        rejects, place = dict(self.column.receipt(shard).rejects), 0
        for row in self.column.rows(shard):
            while place in rejects:
                yield rejects[place]
                place += 1
            yield row
            place += 1
        yield from (reject for at, reject in rejects.items() if at >= place)


def check_alignment(first: Column, other: Column) -> None:
    """`DataError` unless every shard of `other` accounts for the rows of `first`, in the same order."""
    if other.num_shards < first.num_shards and other.num_shards in first.shards_before:
        command = command_for(other.name, other.identity.stage)
        raise MissingError(
            f"{other.path}: lacks the images that were added to '{first.name}' since it was written; rerun "
            f"'{command}', it does only the new ones"
        )
    if first.num_shards != other.num_shards:
        raise DataError(
            f"{other.path}: has {other.num_shards} shards and '{first.name}' has {first.num_shards}; "
            f"delete it and rerun 'viewkit {other.identity.stage}'"
        )
    ours, theirs = first.index, other.index
    rejected: dict[int, set[str]] = {}
    for shard, reject in theirs.rejected:
        rejected.setdefault(shard, set()).add(reject.key)
    pairs = zip(ours.table["keys"].tolist(), theirs.table["keys"].tolist(), strict=True)
    for shard in [shard for shard, (own, same) in enumerate(pairs) if own != same or shard in rejected]:
        place = f"shard {shard_name(shard)}: column '{other.name}'"
        gone = rejected.get(shard, set())
        expected = [key for key in ours.keys_of(shard) if key not in gone]
        found = theirs.keys_of(shard)
        if expected == found:
            continue
        held, wanted = set(found), set(expected)
        lacking = [key for key in expected if key not in held]
        extra = [key for key in found if key not in wanted]
        if lacking:
            what = f"lacks {len(lacking)} rows that are not among its rejects (first: {lacking[0]})"
        elif extra:
            what = f"holds {len(extra)} rows that '{first.name}' does not (first: {extra[0]})"
        else:
            what = f"holds the rows of '{first.name}' in another order"
        raise DataError(f"{place} {what}; delete {other.path} and rerun 'viewkit {other.identity.stage}'")
