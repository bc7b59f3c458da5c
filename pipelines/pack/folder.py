"""Source: a folder of image files."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from viewkit.pipelines.pack.keys import row_key, shuffled
from viewkit.pipelines.pack.listing import Folder, Texts, listing_digest, span
from viewkit.pipelines.pack.raw import LABEL, SOURCE, extension_of, refuse
from viewkit.shards.row import Reject, Row


class FolderSources:
    """Every image-looking file below a folder, as found: nothing is decoded here.

    folder: the result of `list_folder(root)`.
    labels: with ``folders``, a row's class is the index of its first-level folder among those that hold images, sorted.
    """

    def __init__(self, root: Path, folder: Folder, *, labels: str, rows_per_shard: int, max_bytes: int) -> None:
        self._root = os.fspath(root)
        self._rows_per_shard = rows_per_shard
        self._max_bytes = max_bytes
        order = shuffled([found.path for found in folder.images])
        self._paths = Texts(folder.images[i].path for i in order)
        self.digest = listing_digest("folder", folder.images)
        names = sorted({found.path.split("/")[0] for found in folder.images if "/" in found.path})
        self.classes: tuple[str, ...] | None = tuple(names) if labels == "folders" else None
        ignored = folder.others + len(folder.tars)
        self.notes: tuple[str, ...] = (f"{ignored} other files in the source were left out",) if ignored else ()

    @property
    def num_rows(self) -> int:
        return len(self._paths)

    @property
    def num_shards(self) -> int:
        return -(-self.num_rows // self._rows_per_shard)

    def keys(self, shard: int) -> Sequence[str]:
        return [row_key(self._paths[i]) for i in span(shard, self._rows_per_shard, self.num_rows)]

    def rows(self, shard: int) -> Iterator[Row | Reject]:
        """Raw rows: a file's bytes under its extension as found, its path, and its class."""
        for i in span(shard, self._rows_per_shard, self.num_rows):
            yield self._read(self._paths[i])

    def _read(self, path: str) -> Row | Reject:
        try:
            file = os.open(os.path.join(self._root, path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with open(file, "rb") as stream:
                facts = os.fstat(stream.fileno())
                if not stat.S_ISREG(facts.st_mode):
                    return refuse(path, "unreadable", "it is no longer a regular file")
                if facts.st_size > self._max_bytes:
                    return refuse(path, "too_many_bytes", f"{facts.st_size}; max_file_mb allows {self._max_bytes}")
                data = stream.read()
        except OSError as error:
            return refuse(path, "unreadable", error.strerror or type(error).__name__)
        fields = {extension_of(path): data, SOURCE: path.encode("utf-8", "surrogateescape")}
        if self.classes is not None:
            first, slash, _ = path.partition("/")
            if not slash:
                return refuse(path, "no_label", "it lies beside the class folders, not in one")
            fields["cls"] = b"%d" % int(np.searchsorted(np.array(self.classes, dtype=object), first))
            fields[LABEL] = first.encode("utf-8", "surrogateescape")
        return Row(row_key(path), fields)
