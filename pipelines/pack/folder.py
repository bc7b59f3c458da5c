"""Source: a folder of image files."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import display, row_key, shuffled
from viewkit.pipelines.pack.listing import Listing, Texts, listing_digest
from viewkit.pipelines.pack.numbered import ClassFolders
from viewkit.pipelines.pack.raw import PATH, extension_of, reject_file
from viewkit.shards.row import Reject, Row
from viewkit.shards.stores.mounts import FOLDERS


def open_folder(root: Path, listing: Listing, config: PackConfig) -> "FolderSources":
    return FolderSources(
        root,
        listing,
        labels=config.labels,
        rows_per_shard=config.rows_per_shard,
        max_bytes=config.max_file_mb * 10**6,
    )


class FolderSources(ClassFolders):
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

    def class_name(self, i: int) -> str | None:
        """The first-level folder; None of an image that lies beside these."""
        first, slash, _ = self._paths[i].partition("/")
        return first if slash else None

    def key(self, i: int) -> str:
        return row_key(self._paths[i])

    def read(self, places: Sequence[int]) -> Iterator[Row | Reject]:
        if self._root not in FOLDERS:
            return super().read(places)
        from viewkit.shards.stores.folder import read_ahead

        return read_ahead(self.row, places)

    def row(self, i: int) -> Row | Reject:
        """A file's bytes under its extension as found, its path, and its class."""
        path = self._paths[i]
        data = read_file(self._root, path, self._max_bytes)
        if isinstance(data, Reject):
            return data
        own = self.class_fields(i, path)
        if isinstance(own, Reject):
            return own
        return Row(row_key(path), {extension_of(path): data, PATH: path.encode("utf-8", "surrogateescape"), **own})


def read_file(root: str, path: str, max_bytes: int) -> bytes | Reject:
    """The bytes of a file at a relative path, or the reject of one that cannot be read or is too large."""
    folder = FOLDERS.get(root)
    try:
        if folder is not None:
            data = folder.read(path)
            if len(data) > max_bytes:
                return reject_file(path, "too_many_bytes", f"{len(data)}; max_file_mb allows {max_bytes}")
            return data
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
