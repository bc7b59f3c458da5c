"""CIFAR-10, CIFAR-100 and STL-10 as they lie on disk: arrays of pixels, which become PNGs."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from viewkit.pipelines.pack.array_pickle import DAMAGED, ArrayRecord, read_arrays, texts_of
from viewkit.pipelines.pack.composition import NO_CLASS
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import display, row_key, shuffled
from viewkit.pipelines.pack.listing import Found, Texts, listing_digest
from viewkit.pipelines.pack.numbered import RowByRow
from viewkit.pipelines.pack.raw import LABEL, PATH
from viewkit.shards.codecs import encode_png, one_line
from viewkit.shards.errors import DataError
from viewkit.shards.row import Row

CIFAR_SIDE_PX, STL_SIDE_PX = 32, 96
MOST_BYTES = 10**9
"""A batch of CIFAR that is larger is none."""


@dataclass(frozen=True)
class Batch:
    """pixels: (n, 3, h, w). labels: `NO_CLASS` where there is none. paths: of every image below the dataset."""

    pixels: UInt8[np.ndarray, "n 3 h w"]
    labels: Int64[np.ndarray, " n"]
    paths: Sequence[str]


Read = Callable[[Path], Batch]


class ArraySources(RowByRow):
    """Images of arrays in files. read: module-level function of a file's path, called once a process.

    turned: whether images are stored column by column.
    """

    def __init__(
        self, kind: str, files: Sequence[Path], read: Read, names: Sequence[str], config: PackConfig, *, turned: bool
    ) -> None:
        self._files, self._read, self._names, self._turned = tuple(files), read, tuple(names), turned
        self._rows_per_shard = config.rows_per_shard
        self._loaded: dict[int, Batch] = {}
        sizes = [Found(path.name, path.stat().st_size) for path in files]
        paths: list[str] = []
        labels: list[int] = []
        places: list[tuple[int, int]] = []
        for number in range(len(files)):
            batch = self._batch(number)
            paths += batch.paths
            labels += batch.labels.tolist()
            places += [(number, i) for i in range(len(batch.paths))]
        if not paths:
            raise DataError(f"pack: '{display(str(files[0]))}' holds no image")
        order = shuffled(paths)
        self._paths = Texts(paths[i] for i in order)
        self._labels = np.array([labels[i] for i in order], dtype=np.int64)
        self._places = np.array([places[i] for i in order], dtype=np.int64)
        self.digest = listing_digest(kind, sizes)

    @property
    def num_rows(self) -> int:
        return len(self._paths)

    def key(self, i: int) -> str:
        return row_key(self._paths[i])

    def labels(self) -> Int64[np.ndarray, " n"]:
        return self._labels

    def row(self, i: int) -> Row:
        file, place = (int(number) for number in self._places[i])
        pixels = self._batch(file).pixels[place].transpose((2, 1, 0) if self._turned else (1, 2, 0))
        path, label = self._paths[i], int(self._labels[i])
        fields = {"png": encode_png(np.ascontiguousarray(pixels)), PATH: path.encode()}
        if label != NO_CLASS:
            fields["cls"] = b"%d" % label
            if label < len(self._names):
                fields[LABEL] = self._names[label].encode()
        return Row(row_key(path), fields)

    def _batch(self, number: int) -> Batch:
        if number not in self._loaded:
            self._loaded[number] = self._read(self._files[number])
        return self._loaded[number]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": {}}


def open_cifar(name: str, folder: Path, split: str, config: PackConfig) -> ArraySources:
    ten = name == "cifar10"
    batches = ([f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]) if ten else [split]
    read: Read = read_cifar10 if ten else read_cifar100
    names = _names_of(folder / ("batches.meta" if ten else "meta"), "label_names" if ten else "fine_label_names")
    return ArraySources(f"{name}:{split}", [folder / each for each in batches], read, names, config, turned=False)


def read_cifar10(path: Path) -> Batch:
    return _read_cifar(path, "labels")


def read_cifar100(path: Path) -> Batch:
    return _read_cifar(path, "fine_labels")


def _read_cifar(path: Path, labels: str) -> Batch:
    found = _pickled(path)
    try:
        pixels, numbers, names = found["data"], found[labels], texts_of(found["filenames"])
        if not isinstance(pixels, ArrayRecord) or not all(type(each) is int and each >= 0 for each in numbers):
            raise ValueError("'data' is no array, or a label is no class number")
        shape = len(names), 3, CIFAR_SIDE_PX, CIFAR_SIDE_PX
        paths = [f"{path.name}/{place:05d}/{name}" for place, name in enumerate(names)]
        values = np.array(numbers, dtype=np.int64)
        if len(values) != len(names):
            raise ValueError(f"it has {len(names)} names and {len(values)} labels")
        return Batch(pixels.bytes_in_order().reshape(shape), values, paths)
    except DAMAGED as error:
        raise _not_as_torchvision_reads(path, error) from error


def _names_of(path: Path, field: str) -> list[str]:
    try:
        return texts_of(_pickled(path)[field])
    except (KeyError, ValueError) as error:
        raise _not_as_torchvision_reads(path, error) from error


def _pickled(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has {path.stat().st_size} bytes")
        return read_arrays(path.read_bytes())
    except OSError as error:
        raise DataError(f"pack: '{display(str(path))}' cannot be read: {error.strerror}") from error
    except DAMAGED as error:
        raise _not_as_torchvision_reads(path, error) from error


def _not_as_torchvision_reads(path: Path, error: Exception) -> DataError:
    return DataError(
        f"pack: '{display(str(path))}' is not as torchvision reads it ({one_line(error)}); unpack the dataset again"
    )


def open_stl(name: str, folder: Path, split: str, config: PackConfig) -> ArraySources:
    files = [folder / f"{part}_X.bin" for part in split.split("+")]
    for path in files:
        if not os.path.isfile(path):
            raise DataError(f"pack: '{display(str(path))}' is missing; unpack the dataset again")
    try:
        listed = (folder / "class_names.txt").read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise _not_as_torchvision_reads(folder / "class_names.txt", error) from error
    return ArraySources(f"{name}:{split}", files, read_stl, listed, config, turned=True)


def read_stl(path: Path) -> Batch:
    """Images are mapped, not read: the unlabelled ones take 2.8 GB."""
    row = 3 * STL_SIDE_PX**2
    try:
        count, rest = divmod(path.stat().st_size, row)
        if rest or not count:
            raise ValueError(f"its size is not a number of images of {row} bytes")
        pixels = np.memmap(path, dtype=np.uint8, mode="r").reshape(count, 3, STL_SIDE_PX, STL_SIDE_PX)
        labelled = path.with_name(path.name.replace("_X", "_y"))
        if path.name.startswith("unlabeled"):
            labels = np.full(count, NO_CLASS, dtype=np.int64)
        else:
            labels = np.fromfile(labelled, dtype=np.uint8).astype(np.int64) - 1  # classes are numbered from 1
            if len(labels) != count or (labels < 0).any():
                raise ValueError(f"{labelled.name} does not hold a class from 1 on for each of its {count} images")
    except (OSError, ValueError) as error:
        raise _not_as_torchvision_reads(path, error) from error
    return Batch(pixels, labels, [f"{path.stem}/{place:06d}.png" for place in range(count)])
