"""Source: a folder of image files."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from viewkit.pipelines.pack.composition import NO_CLASS
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import display, row_key, shuffled
from viewkit.pipelines.pack.listing import Listing, Texts, listing_digest, span
from viewkit.pipelines.pack.raw import LABEL, PATH, extension_of, reject_file
from viewkit.shards.row import Reject, Row


def open_folder(root: Path, listing: Listing, config: PackConfig) -> "FolderSources":
    return FolderSources(
        root,
        listing,
        labels=config.labels,
        rows_per_shard=config.rows_per_shard,
        max_bytes=config.max_file_mb * 10**6,
    )


class FolderSources:
    """Every image-looking file below a folder, as found: nothing is decoded here.

    listing: the result of `list_folder(root)`.
    labels: with ``folders``, a row's class is the index of its first-level folder among those that hold images, sorted.
    """

    def __init__(self, root: Path, listing: Listing, *, labels: str, rows_per_shard: int, max_bytes: int) -> None:
        self._root = os.fspath(root)
        self._rows_per_shard = rows_per_shard
        self._max_bytes = max_bytes
        order = shuffled([found.path for found in listing.images])
        self._paths = Texts(listing.images[i].path for i in order)
        self.digest = listing_digest("folder", listing.images)
        names = sorted({found.path.split("/")[0] for found in listing.images if "/" in found.path})
        self.classes: tuple[str, ...] | None = tuple(names) if labels == "folders" else None
        notes, beside = list(listing.beside("images")), listing.annotations
        if beside:
            notes.append(
                f"{len(beside)} of them are images that belong to another one, such as {display(beside[0])}; tars keep "
                "such members beside their image, see docs/pack.md"
            )
        self.notes: tuple[str, ...] = tuple(notes)

    @property
    def num_rows(self) -> int:
        return len(self._paths)

    @property
    def num_shards(self) -> int:
        return -(-self.num_rows // self._rows_per_shard)

    def keys(self, shard: int) -> Sequence[str]:
        return [self.key(i) for i in span(shard, self._rows_per_shard, self.num_rows)]

    def rows(self, shard: int) -> Iterator[Row | Reject]:
        """Raw rows: a file's bytes under its extension as found, its path, and its class."""
        return self.read(span(shard, self._rows_per_shard, self.num_rows))

    def labels(self) -> Int64[np.ndarray, " n"]:
        if self.classes is None:
            return np.full(self.num_rows, NO_CLASS, dtype=np.int64)
        number: dict[str | None, int] = {name: index for index, name in enumerate(self.classes)}
        return np.array([number.get(self.class_name(i), NO_CLASS) for i in range(self.num_rows)], dtype=np.int64)

    def class_name(self, i: int) -> str | None:
        """The first-level folder; None of an image that lies beside these."""
        first, slash, _ = self._paths[i].partition("/")
        return first if slash else None

    def key(self, i: int) -> str:
        return row_key(self._paths[i])

    def read(self, places: Sequence[int]) -> Iterator[Row | Reject]:
        return (self.row(i) for i in places)

    def row(self, i: int) -> Row | Reject:
        path = self._paths[i]
        data = read_file(self._root, path, self._max_bytes)
        if isinstance(data, Reject):
            return data
        fields = {extension_of(path): data, PATH: path.encode("utf-8", "surrogateescape")}
        if self.classes is not None:
            first = self.class_name(i)
            if first is None:
                return reject_file(path, "no_label", "it lies beside the class folders, not in one")
            fields["cls"] = b"%d" % int(np.searchsorted(np.array(self.classes, dtype=object), first))
            fields[LABEL] = first.encode("utf-8", "surrogateescape")
        return Row(row_key(path), fields)


def read_file(root: str, path: str, max_bytes: int) -> bytes | Reject:
    """The bytes of a file at a relative path, or the reject of one that cannot be read or is too large."""
    try:
        file = os.open(os.path.join(root, path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(file, "rb") as stream:
            facts = os.fstat(stream.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return reject_file(path, "unreadable", "it is no longer a regular file")
            if facts.st_size > max_bytes:
                return reject_file(path, "too_many_bytes", f"{facts.st_size}; max_file_mb allows {max_bytes}")
            return stream.read()
    except OSError as error:
        return reject_file(path, "unreadable", error.strerror or type(error).__name__)
