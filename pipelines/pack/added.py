"""A source that has grown: the rows that were packed before keep their shards, new ones get shards behind these.

What was packed before stands in the receipts. So does, for a shard whose receipt was deleted, what it must hold again:
the rows that no other shard holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from viewkit.pipelines.pack.keys import display, plain
from viewkit.pipelines.pack.raw import LABEL
from viewkit.pipelines.pack.source import PackSources
from viewkit.shards.codecs import decode_json
from viewkit.shards.column import Column
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.receipt import shard_name
from viewkit.shards.row import Reject, Row

LOOKED_AT = 256
"""Rows whose stored class is compared with the grown source's; each is read from its shard."""


@runtime_checkable
class GrowingSources(PackSources, Protocol):
    """A source whose rows keep their keys and their order among each other when it gets more of them."""

    classes: Sequence[str] | None
    """Names of the classes, where their numbers are the places of sorted names."""

    own_numbers: Mapping[str, int]
    """Class -> number, where the source numbers classes itself and has names for them."""

    def key(self, place: int, /) -> str: ...

    def class_name(self, place: int, /) -> str | None:
        """Of the row, where classes have names."""
        ...

    def read(self, places: Sequence[int], /) -> Iterator[Row | Reject]:
        """Raw rows at rising places."""
        ...


@dataclass(frozen=True)
class State:
    """Of the column, then or now: it has the shards before `shards`, for the first `rows` inputs."""

    shards: int
    rows: int


def open_added(source: PackSources, column: Column, rows_per_shard: int, *, adds: bool) -> "AddedSources":
    """adds: whether new rows may be there beyond what the column was planned for; else its last state is completed.

    Raises `ConfigError` for a source that cannot grow, `RefusedError` where it lacks rows that were packed or has no
    new ones, `DataError` where the column lacks shards of several states.
    """
    if not isinstance(source, GrowingSources):
        raise ConfigError(
            "pack: --add is for folders, tars, zip and parquet files; pack this source into a new dataset"
        )
    plans = [each.plan for each in column.identity.earlier] + [column.identity.plan]
    states = [State(plan["shards"], plan["rows"]) for plan in plans]
    complete = set(column.complete_shards())
    lacking = [shard for shard in range(states[-1].shards) if shard not in complete]
    if adds and lacking:
        raise RefusedError(
            f"pack: {column.path} lacks shard {shard_name(lacking[0])} of what was to be packed before, and the source "
            "has other files now; bring the old files back and finish it, or add --redo without --add"
        )
    return AddedSources(source, column, states, lacking, rows_per_shard, adds)


class AddedSources:
    """Rows of the states of a column, of which the shards that are complete are never read again."""

    def __init__(
        self,
        source: GrowingSources,
        column: Column,
        states: Sequence[State],
        lacking: Sequence[int],
        rows_per_shard: int,
        adds: bool,
    ) -> None:
        self._source, self.digest, self.notes = source, source.digest, source.notes
        place_of = {source.key(place): place for place in range(source.num_rows)}
        state_of = np.full(source.num_rows, len(states) - 1 + adds, dtype=np.int32)
        held: dict[int, list[str]] = {}
        for shard in range(states[-1].shards):
            if shard in lacking:
                continue
            held[shard] = column.receipt(shard).keys()
            for key in held[shard]:
                if key not in place_of:
                    raise RefusedError(
                        f"pack: {display(key)} was packed before and is not in the source any more; --add packs new "
                        "images of a source that still has the old ones"
                    )
            state_of[[place_of[key] for key in held[shard]]] = _state(states, shard)
        new = sorted(set(range(source.num_rows)) - {place_of[key] for keys in held.values() for key in keys})
        if adds:
            if not new:
                raise RefusedError(
                    "pack: the source has no new images, but files of it have another size than when they were packed; "
                    "--add leaves what is packed as it is: bring the old files back, or use another dataset"
                )
            states = [*states, State(states[-1].shards - (-len(new) // rows_per_shard), states[-1].rows + len(new))]
            lacking = range(states[-2].shards, states[-1].shards)
        elif len({_state(states, shard) for shard in lacking}) > 1:
            raise DataError(
                f"{column.path}: shards of several additions are missing (first: {shard_name(lacking[0])}), and what "
                "they held is not known; restore a copy, or add --redo"
            )
        else:
            state_of[new] = _state(states, lacking[0]) if lacking else len(states) - 1
        self._states = states
        self._places = self._cut(new, lacking, rows_per_shard)
        self._numbers = _class_numbers(source, state_of) if source.classes is not None else None
        self._column = column
        numbers = source.own_numbers if self._numbers is None else self._numbers
        if adds and numbers:
            _require_same_classes(source, column, [place_of[key] for keys in held.values() for key in keys], numbers)

    def _cut(self, new: list[int], lacking: Sequence[int], rows_per_shard: int) -> dict[int, list[int]]:
        """The new places, in order, into the shards that are lacking."""
        found: dict[int, list[int]] = {}
        for shard in lacking:
            number = _state(self._states, shard)
            first = self._states[number - 1] if number else State(0, 0)
            size = min(rows_per_shard, self._states[number].rows - first.rows - (shard - first.shards) * rows_per_shard)
            found[shard], new = new[:size], new[size:]
        if new or any(not places for places in found.values()):
            raise DataError("pack: the source does not have the files that the missing shards held; restore a copy")
        return found

    @property
    def num_rows(self) -> int:
        return self._states[-1].rows

    @property
    def num_shards(self) -> int:
        return self._states[-1].shards

    def keys(self, shard: int) -> Sequence[str]:
        if shard in self._places:
            return [self._source.key(place) for place in self._places[shard]]
        return self._column.receipt(shard).keys()

    def rows(self, shard: int) -> Iterator[Row | Reject]:
        for row in self._source.read(self._places[shard]):
            yield row if isinstance(row, Reject) else self._renumbered(row)

    def _renumbered(self, row: Row) -> Row:
        """Classes that came later have numbers behind the old ones', whatever their names."""
        if self._numbers is None or LABEL not in row.fields:
            return row
        number = self._numbers[row.fields[LABEL].decode("utf-8", "surrogateescape")]
        return Row(row.key, {**row.fields, "cls": b"%d" % number})


def _state(states: Sequence[State], shard: int) -> int:
    return next(number for number, state in enumerate(states) if shard < state.shards)


def _class_numbers(source: GrowingSources, state_of: np.ndarray) -> dict[str, int]:
    """Sorted names of the first state, then the sorted new ones of the next."""
    names: dict[int, set[str]] = {}
    for place in range(source.num_rows):
        name = source.class_name(place)
        if name is not None:
            names.setdefault(int(state_of[place]), set()).add(name)
    found: dict[str, int] = {}
    for state in sorted(names):
        for name in sorted(names[state] - found.keys()):
            found[name] = len(found)
    return found


def _require_same_classes(
    source: GrowingSources, column: Column, held: Sequence[int], numbers: Mapping[str, int]
) -> None:
    """`RefusedError` unless rows that are packed have the class that the source gives them now: `LOOKED_AT` of them, at
    least one of every class. In zip files, a folder is a class or not by what lies beside it; a parquet file may
    number its classes anew.

    held: places of what was packed. Rows without the name of a class are passed over: other settings, refused as such.
    """
    by_class: dict[str | None, list[int]] = {}
    for place in held:
        by_class.setdefault(source.class_name(place), []).append(place)
    for now, places in by_class.items():
        for place in places[:: max(1, len(places) * len(by_class) // LOOKED_AT)]:
            key = source.key(place)
            fields = column.fields(column.place_of[key]) if key in column.place_of else {}
            name = decode_json(fields["json"]).get("label") if "cls" in fields else None
            if name is None:
                continue
            then, wanted = f"class {int(fields['cls'])} '{display(name)}'", "no class"
            if now is not None:
                wanted = f"class {numbers[now]} '{display(plain(now))}'"
            if then != wanted:
                raise RefusedError(
                    f"pack: {display(key)} was packed as {then}, and with the new images it would be {wanted}; put the "
                    "new ones in folders like the old ones' (in zip files, folders that all images share are no "
                    "classes; in parquet files, new classes come behind the old ones), or pack the source into another "
                    "dataset"
                )
