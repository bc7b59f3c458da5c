"""Source: WebDataset tars, one file or a folder of them, plain or compressed.

A sample is a run of members with the same key: the path up to the first dot of its last part (as `webdataset` groups
them). The tars are indexed once, headers only, and then read by position; nothing is ever unpacked to disk. A position
in a compressed tar is reached by decompressing all before it, so its samples are rows in the order of the archive.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int64

from viewkit.pipelines.pack.archive_stream import STREAM_ERRORS, open_archive
from viewkit.pipelines.pack.composition import NO_CLASS
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import display, row_key, shuffled
from viewkit.pipelines.pack.listing import Found, Listing, Texts, listing_digest
from viewkit.pipelines.pack.numbered import NumberedSources
from viewkit.pipelines.pack.raw import IMAGES, PATH, reject_file
from viewkit.pipelines.pack.tar_index import TarIndex
from viewkit.shards.codecs import one_line
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import most_open_files, refuse_too_many_open
from viewkit.shards.row import Reject, Row
from viewkit.shards.stores.mounts import local_file

EXTENSION = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}")
LABEL_BYTES = 64
"""Members KEY.cls that are longer hold no class index."""


def open_tars(root: Path, listing: Listing, config: PackConfig) -> "TarSources":
    _refuse_class_folders(config)
    rows_per_shard, max_bytes = config.rows_per_shard, config.max_file_mb * 10**6
    beside = listing.beside("tars")
    return TarSources(root, listing.tars, rows_per_shard=rows_per_shard, max_bytes=max_bytes, notes=beside)


def open_compressed_tars(root: Path, listing: Listing, config: PackConfig) -> "StreamedTarSources":
    _refuse_class_folders(config)
    rows_per_shard, max_bytes = config.rows_per_shard, config.max_file_mb * 10**6
    beside = listing.beside("compressed")
    return StreamedTarSources(
        root, listing.compressed, rows_per_shard=rows_per_shard, max_bytes=max_bytes, notes=beside
    )


def _refuse_class_folders(config: PackConfig) -> None:
    if config.labels == "folders":
        raise ConfigError("pack: labels 'folders' needs a folder of images; tars bring their labels as KEY.cls")


class Samples(NumberedSources):
    """The samples of tars; every member of a sample is kept under its own extension.

    Reading raises `DataError` when a tar is no longer as long as it was when it was indexed.

    notes: lines to show beside its own.
    """

    kind: ClassVar[str]
    """Of the listing's digest."""
    classes: None = None
    """Classes are the numbers of KEY.cls."""

    def __init__(
        self, root: Path, tars: Sequence[Found], *, rows_per_shard: int, max_bytes: int, notes: Sequence[str] = ()
    ) -> None:
        self._root = os.fspath(root)
        self._tars = tuple(found.path for found in tars)
        self._rows_per_shard = rows_per_shard
        self._max_bytes = max_bytes
        self.digest = listing_digest(self.kind, tars)
        names: list[str] = []
        tar_of: list[int] = []
        members: list[tuple[int, int]] = []
        extensions: list[str] = []
        starts = [0]
        left_out = 0
        for number, found in enumerate(tars):
            index = TarIndex(local_file(self._root, found.path), found.path)
            left_out += index.left_out
            for name, parts in index.samples.items():
                names.append(f"{found.path}/{name}")
                tar_of.append(number)
                members.extend((offset, size) for offset, size in parts.values())
                extensions.extend(parts)
                starts.append(len(members))
        if not names:
            raise DataError(
                "pack: the tars hold no sample named KEY.EXTENSION; "
                "a WebDataset tar is needed, e.g. with the members 0001.jpg and 0001.cls"
            )
        self._order = np.array(self._in_order(names), dtype=np.int64)
        self._names, self._extensions = Texts(names), Texts(extensions)
        self._tar_of = np.array(tar_of, dtype=np.int32)
        self._members = np.array(members, dtype=np.int64).reshape(-1, 2)  # offset and size of each member
        self._starts = np.array(starts, dtype=np.int64)
        note = f"{left_out} members of the tars belong to no sample and were left out"
        self.notes: tuple[str, ...] = (*notes, *((note,) if left_out else ()))

    def _in_order(self, names: Sequence[str]) -> Sequence[int]:
        return shuffled(names)

    @property
    def num_rows(self) -> int:
        return len(self._names)

    def key(self, i: int) -> str:
        return row_key(self._names[int(self._order[i])])

    def class_name(self, i: int) -> None:
        return None

    def _read(self, sample: int, stream: BufferedIOBase) -> Row | Reject:
        name = self._names[sample]
        fields: dict[str, bytes] = {}
        path = name
        for member in range(int(self._starts[sample]), int(self._starts[sample + 1])):
            extension = self._extensions[member]
            offset, size = (int(number) for number in self._members[member])
            if EXTENSION.fullmatch(extension) is None:
                return reject_file(name, "bad_member", f"extension '{display(extension)}' has odd characters")
            if size > self._max_bytes:
                return reject_file(
                    name, "too_many_bytes", f"{extension} has {size}; max_file_mb allows {self._max_bytes}"
                )
            tar = self._tars[int(self._tar_of[sample])]
            try:
                stream.seek(offset)
                fields[extension] = stream.read(size)
            except STREAM_ERRORS as error:
                refuse_too_many_open(error, tar)
                raise DataError(f"pack: the tar '{display(tar)}' can no longer be read: {one_line(error)}") from error
            if len(fields[extension]) != size:
                raise DataError(f"pack: '{display(tar)}' has become shorter since it was listed; pack it again")
            if extension in IMAGES:
                path = f"{name}.{extension}"
        fields[PATH] = path.encode("utf-8", "surrogateescape")
        return Row(row_key(name), fields)


class TarSources(Samples):
    """The samples of plain tars, in the order of their names' hashes, read by position."""

    kind = "tars"

    def read(self, places: Sequence[int]) -> Iterator[Row | Reject]:
        opened: OrderedDict[int, BufferedIOBase] = OrderedDict()  # those that were used last
        try:
            for i in places:
                sample = int(self._order[i])
                tar = int(self._tar_of[sample])
                if tar not in opened:
                    if len(opened) >= most_open_files():
                        opened.popitem(last=False)[1].close()
                    name = self._tars[tar]
                    opened[tar] = open_archive(local_file(self._root, name), name)
                opened.move_to_end(tar)
                yield self._read(sample, opened[tar])
        finally:
            for stream in opened.values():
                stream.close()

    def row(self, i: int) -> Row | Reject:
        sample = int(self._order[i])
        name = self._tars[int(self._tar_of[sample])]
        with open_archive(local_file(self._root, name), name) as stream:
            return self._read(sample, stream)

    def labels(self) -> Int64[np.ndarray, " n"]:
        """Read from every KEY.cls; one that is no class index counts as none, and its sample is a reject anyway."""
        found = np.full(len(self._names), NO_CLASS, dtype=np.int64)
        for tar in range(len(self._tars)):
            with open_archive(local_file(self._root, self._tars[tar]), self._tars[tar]) as stream:
                for sample in np.flatnonzero(self._tar_of == tar):
                    for member in range(int(self._starts[sample]), int(self._starts[sample + 1])):
                        offset, size = (int(number) for number in self._members[member])
                        if self._extensions[member] == "cls" and size <= LABEL_BYTES:
                            stream.seek(offset)
                            label = stream.read(size).strip()
                            found[sample] = int(label) if label.isdigit() and len(label) <= 9 else NO_CLASS
        return found[self._order]


class StreamedTarSources(Samples):
    """The samples of compressed tars, in the archives' order: whoever reads shards one after the other decompresses
    once. The stream at hand stays open between shards; it is not pickled."""

    kind = "compressed tars"
    _at: int | None = None
    _stream: BufferedIOBase | None = None

    def _in_order(self, names: Sequence[str]) -> Sequence[int]:
        shuffled(names)  # two names that give one key are an error
        return range(len(names))

    def read(self, places: Sequence[int]) -> Iterator[Row | Reject]:
        for sample in places:
            tar = int(self._tar_of[sample])
            if tar != self._at or self._stream is None:
                if self._stream is not None:
                    self._stream.close()
                self._stream = open_archive(local_file(self._root, self._tars[tar]), self._tars[tar])
                self._at = tar
            yield self._read(sample, self._stream)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_at", "_stream")}
