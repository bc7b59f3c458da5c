"""Source: parquet files as Hugging Face writes them: an image a row, as bytes or struct<bytes, path>, and its label.

Only the columns of images and labels are read, a row group after the other. The row groups come in the order of their
names' hashes, so that every shard is a mix of the source even where files are sorted by class.
"""

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import display, path_digest, row_key
from viewkit.pipelines.pack.listing import Found, Listing, listing_digest
from viewkit.pipelines.pack.numbered import NumberedSources
from viewkit.pipelines.pack.parquet_columns import ImageTable, table_of
from viewkit.pipelines.pack.raw import IMAGES, LABEL, PATH, extension_of, reject_file
from viewkit.shards.codecs import one_line
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import refuse_too_many_open
from viewkit.shards.row import Reject, Row
from viewkit.shards.stores.mounts import local_file

BATCH = 32
"""Rows that are held at a time."""
BUFFER = 1 << 20


def open_parquets(root: Path, listing: Listing, config: PackConfig) -> "ParquetSources":
    if config.labels == "folders":
        raise ConfigError("pack: labels 'folders' needs a folder of images; parquet files have a column of labels")
    return ParquetSources(root, listing.parquets, config, listing.beside("parquets"))


@dataclass(frozen=True, slots=True)
class RowGroup:
    """file: number of the file. first: the row of the file that is the group's first."""

    file: int
    group: int
    first: int
    rows: int


class ParquetSources(NumberedSources):
    """The rows of parquet files. A row's path is the file's own, ``/`` and its number, then ``/`` and the path that
    it holds beside its bytes, if any; its key is made of file and number alone."""

    def __init__(self, root: Path, files: Sequence[Found], config: PackConfig, notes: Sequence[str]) -> None:
        self._root, self._files = os.fspath(root), tuple(found.path for found in files)
        self._rows_per_shard, self._max_bytes = config.rows_per_shard, config.max_file_mb * 10**6
        self.digest = listing_digest("parquet", files)
        groups: list[RowGroup] = []
        tables: list[ImageTable] = []
        for number, name in enumerate(self._files):
            file = open_parquet(local_file(self._root, name), name)
            tables.append(table_of(file.schema_arrow, name, config.image_column, config.label_column))
            first = 0
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                groups.append(RowGroup(number, group, first, rows))
                first += rows
        self._table = _common(tables, self._files)
        self._groups = sorted((each for each in groups if each.rows), key=self._place_of)
        self._ends = np.cumsum([each.rows for each in self._groups], dtype=np.int64)
        if not self._groups:
            raise DataError(f"pack: '{display(self._files[0])}' has no row; parquet files with images are needed")
        self.classes: tuple[str, ...] | None = None
        if self._table.label is not None and self._table.text_labels:
            labels = list(self._labels(self._table.label))
            self.classes = tuple(sorted({label for label in labels if label is not None}))
            places = {label: place for place, label in enumerate(self.classes)}
            self._class_of = np.array([-1 if label is None else places[label] for label in labels], dtype=np.int32)
        self.own_numbers = {name: number for number, name in enumerate(self._table.names) if self.classes is None}
        self.notes: tuple[str, ...] = (*notes, *self._table.notes)
        self._cursor: Cursor | None = None

    def _place_of(self, group: RowGroup) -> bytes:
        return path_digest(f"{self._files[group.file]}/{group.group}")

    @property
    def num_rows(self) -> int:
        return int(self._ends[-1])

    def key(self, i: int) -> str:
        return row_key(self._path(*self._find(i)))

    def read(self, places: Sequence[int]) -> Iterator[Row | Reject]:
        """places: the quicker the more of them rise one by one; memory holds a few rows."""
        for i in places:
            group, row = self._find(i)
            if self._cursor is None or self._cursor.group != group or self._cursor.next > row:
                name = self._files[group.file]
                self._cursor = Cursor(local_file(self._root, name), name, group, self._table.columns)
            yield self._raw(self._path(group, row), *self._cursor.values(row))

    def _find(self, i: int) -> tuple[RowGroup, int]:
        """Row group of a place, and the row in it."""
        number = int(np.searchsorted(self._ends, i, side="right"))
        return self._groups[number], i - int(self._ends[number] - self._groups[number].rows)

    def _path(self, group: RowGroup, row: int) -> str:
        return f"{self._files[group.file]}/{group.first + row:08d}"

    def _raw(self, path: str, image: Any, label: Any) -> Row | Reject:
        key, name = row_key(path), None
        if isinstance(image, dict):
            image, name = image.get("bytes"), image.get("path")
        shown = f"{path}/{name}" if isinstance(name, str) and name else path
        if image is None:
            if name is None:
                return reject_file(shown, "empty", "the row has no image", key=key)
            return reject_file(shown, "unreadable", "the row has a path and no bytes; embed the images first", key=key)
        if len(image) > self._max_bytes:
            return reject_file(shown, "too_many_bytes", f"{len(image)}; max_file_mb allows {self._max_bytes}", key=key)
        extension = extension_of(shown)
        fields = {extension if extension in IMAGES else "jpg": image, PATH: shown.encode("utf-8", "surrogateescape")}
        if isinstance(label, str):
            assert self.classes is not None  # labels that are texts have them
            fields |= {"cls": b"%d" % bisect_left(self.classes, label), LABEL: label.encode("utf-8", "surrogateescape")}
        elif label is not None and label >= 0:  # -1 where it is not known
            fields["cls"] = b"%d" % label
            if label < len(self._table.names):
                fields[LABEL] = self._table.names[label].encode("utf-8", "surrogateescape")
        return Row(key, fields)

    def class_name(self, i: int) -> str | None:
        """Of labels that are texts, and of numbers that have names in the file's metadata."""
        names, number = (self._table.names, self._numbers) if self.classes is None else (self.classes, self._class_of)
        return names[number[i]] if names and 0 <= number[i] < len(names) else None

    @cached_property
    def _numbers(self) -> Int64[np.ndarray, " n"]:
        """Of labels that are numbers, -1 where there is none."""
        assert self._table.label is not None
        return np.array([-1 if label is None else label for label in self._labels(self._table.label)], dtype=np.int64)

    def _labels(self, column: str) -> Iterator[Any]:
        """The labels of all rows in order; this reads their column whole."""
        for group in self._groups:
            name = self._files[group.file]
            yield from Cursor(local_file(self._root, name), name, group, (column,)).rest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cursor": None}


class Cursor:
    """Goes forwards through one row group, a few rows at a time. columns: of the images, then of the labels."""

    def __init__(self, path: str, name: str, group: RowGroup, columns: Sequence[str]) -> None:
        self.group, self.next, self._name, self._columns = group, 0, name, columns
        file = open_parquet(path, name)
        self._batches = file.iter_batches(BATCH, row_groups=[group.group], columns=list(columns), use_threads=False)
        self._batch: Any = None
        self._first = 0

    def values(self, row: int) -> tuple[Any, Any]:
        """Image and label of a row, the next one or a later one; `DataError` where the file is damaged."""
        while self._batch is None or row >= self._first + self._batch.num_rows:
            self._first += 0 if self._batch is None else self._batch.num_rows
            self._batch = self._more()
        self.next = row + 1
        try:
            values = [self._batch.column(name)[row - self._first].as_py() for name in self._columns]
        except ValueError as error:  # a path or label that is not UTF-8
            raise self._damaged(error) from error
        return values[0], values[1] if len(values) > 1 else None

    def rest(self) -> Iterator[Any]:
        """The first column's values of all rows."""
        return (self.values(row)[0] for row in range(self.next, self.group.rows))

    def _more(self) -> Any:
        import pyarrow

        try:
            return next(self._batches)
        except StopIteration:
            raise DataError(f"pack: '{display(self._name)}' has changed since it was listed; pack it again") from None
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DataError:
        return DataError(
            f"pack: the parquet file '{display(self._name)}' is damaged in row group {self.group.group}: "
            f"{one_line(error)}; copy it again"
        )


def open_parquet(path: str, name: str) -> Any:
    """A `pyarrow.parquet.ParquetFile`. `ConfigError` without pyarrow, `DataError` for a file that is none."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            f"pack: '{display(name)}' is a parquet file, which takes pyarrow; pip install '.[parquet]', where "
            "viewkit's source is"
        ) from error
    try:
        return parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        refuse_too_many_open(error, name)
        raise DataError(
            f"pack: the parquet file '{display(name)}' is cut or damaged, or no parquet file: {one_line(error)}; copy "
            "it again"
        ) from error


def _common(tables: Sequence[ImageTable], files: Sequence[str]) -> ImageTable:
    """The columns that all files have alike."""
    for table, name in zip(tables, files, strict=True):
        if table != tables[0]:
            raise DataError(
                f"pack: '{display(files[0])}' and '{display(name)}' have other columns of images, labels or classes; "
                "pack them one by one, or name the columns with --image-column and --label-column"
            )
    return tables[0]
