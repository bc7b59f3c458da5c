"""What sources share whose rows are numbered: the cut into shards, and classes that are names of folders."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Int64

from viewkit.pipelines.pack.composition import NO_CLASS
from viewkit.pipelines.pack.listing import span
from viewkit.pipelines.pack.raw import LABEL, reject_file
from viewkit.shards.row import Reject, Row


class NumberedSources(ABC):
    """Rows 0 ... ``num_rows`` - 1 in their final order, `_rows_per_shard` to a shard."""

    notes: tuple[str, ...] = ()
    own_numbers: Mapping[str, int] = {}
    _rows_per_shard: int

    @property
    @abstractmethod
    def num_rows(self) -> int: ...

    @abstractmethod
    def key(self, place: int) -> str: ...

    @abstractmethod
    def read(self, places: Sequence[int]) -> Iterator[Row | Reject]:
        """Raw rows at these places, in their order."""

    @property
    def num_shards(self) -> int:
        return -(-self.num_rows // self._rows_per_shard)

    def keys(self, shard: int) -> Sequence[str]:
        return [self.key(place) for place in span(shard, self._rows_per_shard, self.num_rows)]

    def rows(self, shard: int) -> Iterator[Row | Reject]:
        return self.read(span(shard, self._rows_per_shard, self.num_rows))


class RowByRow(NumberedSources):
    """Sources whose rows are read one by one, in any order."""

    @abstractmethod
    def row(self, place: int) -> Row | Reject: ...

    def read(self, places: Sequence[int]) -> Iterator[Row | Reject]:
        return (self.row(place) for place in places)


class ClassFolders(RowByRow):
    """Sources of files in folders. classes: names of the folders that are classes, sorted; None where none are."""

    classes: tuple[str, ...] | None

    @abstractmethod
    def class_name(self, place: int) -> str | None:
        """The row's folder; None of one that lies beside the folders."""

    def labels(self) -> Int64[np.ndarray, " n"]:
        """The class of every row, `NO_CLASS` where it has none."""
        if self.classes is None:
            return np.full(self.num_rows, NO_CLASS, dtype=np.int64)
        number: dict[str | None, int] = {name: index for index, name in enumerate(self.classes)}
        return np.array([number.get(self.class_name(i), NO_CLASS) for i in range(self.num_rows)], dtype=np.int64)

    def class_fields(self, place: int, path: str) -> dict[str, bytes] | Reject:
        """Number and name of the row's class; the reject of a file at `path` that lies beside the folders."""
        if self.classes is None:
            return {}
        name = self.class_name(place)
        if name is None:
            return reject_file(path, "no_label", "it lies beside the class folders, not in one")
        return {"cls": b"%d" % bisect_left(self.classes, name), LABEL: name.encode("utf-8", "surrogateescape")}
