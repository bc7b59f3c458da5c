"""What is in a source: relative paths and sizes, its digest, and the cut into shards.

Listings are handed to every worker, so a million paths are kept as one block of bytes instead of a million objects.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import numpy as np

from viewkit.pipelines.pack.keys import display
from viewkit.shards.errors import DataError


class Texts(Sequence[str]):
    """An immutable sequence of strings in one block of bytes: small in memory, quick to pickle."""

    def __init__(self, texts: Iterable[str]) -> None:
        encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        self._block = b"".join(encoded)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        at = index % len(self)
        return self._block[self._ends[at] : self._ends[at + 1]].decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Found:
    """One file. size: bytes, -1 for a link that leads nowhere."""

    path: str
    size: int


@dataclass
class Listing:
    """Everything below a folder, sorted by path into what may be packed and what is only counted.

    annotations: images that belong to another one, see `ANNOTATIONS`; counted among the others, too.
    """

    images: list[Found] = field(default_factory=list)
    tars: list[Found] = field(default_factory=list)
    compressed: list[Found] = field(default_factory=list)
    zips: list[Found] = field(default_factory=list)
    parquets: list[Found] = field(default_factory=list)
    annotations: list[str] = field(default_factory=list)
    others: int = 0

    def add(self, found: Found) -> None:
        """Put a file where its name says it belongs."""
        lower = found.path.lower()
        if os.path.splitext(lower)[1] in IMAGE_SUFFIXES:
            self.images.append(found)
        elif (kind := kind_of_archive(lower)) is not None:
            getattr(self, kind).append(found)
        else:
            self.others += 1

    def beside(self, kind: str) -> tuple[str, ...]:
        """What is left out where the files of one kind are packed, as the lines of `Sources.notes`."""
        kinds = ("images", "tars", "compressed", "zips", "parquets")
        left_out = self.others + sum(len(getattr(self, name)) for name in kinds if name != kind)
        return (f"{left_out} other files in the source were left out",) if left_out else ()


JPEG_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo")
NETPBM_SUFFIXES = (".ppm", ".pgm", ".pbm", ".pnm")
OTHER_SUFFIXES = (".png", ".apng", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff", ".avif", ".heic", ".heif")
IMAGE_SUFFIXES = frozenset((*JPEG_SUFFIXES, *NETPBM_SUFFIXES, *OTHER_SUFFIXES))
ANNOTATIONS = frozenset(("mask", "masks", "seg", "segmentation", "depth", "alpha", "matte", "panoptic", "instances"))
"""Words that name an annotation of the image KEY in KEY.WORD.png."""
COMPRESSED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst", ".tar.lz4")
ARCHIVES: Mapping[str, tuple[str, ...]] = {
    "tars": (".tar",),
    "compressed": COMPRESSED_TARS,
    "zips": (".zip",),
    "parquets": (".parquet",),
}
"""Field of `Listing` -> the ends of the names of its files, in lower case."""


def kind_of_archive(name: str) -> str | None:
    """The field of `Listing` that an archive of this name belongs to; None of what is no archive."""
    return next((kind for kind, ends in ARCHIVES.items() if name.lower().endswith(ends)), None)


def list_folder(root: Path, *, leave_out: Path | None = None) -> Listing:
    """Walk `root`. Links are followed, but never back into a folder above; hidden names and `leave_out` are skipped.

    Raises `DataError` when a folder cannot be read.
    """
    listing = Listing()
    skipped = None if leave_out is None else _identity(os.fspath(leave_out))
    for path, size in _walk(os.fspath(root), "", (), skipped):
        listing.add(Found(path, size))
    return sorted_listing(listing)


def sorted_listing(listing: Listing) -> Listing:
    """With images that belong to another one among the others, and everything in order."""
    listing.annotations = annotations_among([found.path for found in listing.images])
    belong = set(listing.annotations)
    listing.images = [found for found in listing.images if found.path not in belong]
    listing.others += len(belong)
    for kind in ("images", *ARCHIVES):
        getattr(listing, kind).sort(key=lambda one: one.path.encode("utf-8", "surrogateescape"))
    return listing


def annotations_among(paths: Sequence[str]) -> list[str]:
    """Those of the images' paths that, like KEY.mask.png beside KEY.jpg, are no images of their own."""
    stems = {os.path.splitext(path)[0] for path in paths}
    return sorted(path for path in paths if _annotates(path, stems))


def _annotates(path: str, stems: Set[str]) -> bool:
    """stems: paths of all without the last suffix."""
    stem, _, word = os.path.splitext(path)[0].rpartition(".")
    return word.lower() in ANNOTATIONS and stem in stems


def _walk(
    root: str, below: str, above: tuple[tuple[int, int], ...], skipped: tuple[int, int] | None
) -> Iterator[tuple[str, int]]:
    """(relative POSIX path, size) of every regular file below `root`/`below`; `above`: the folders that lead there."""
    here = os.path.join(root, below) if below else root
    identity = _identity(here)
    if identity in above or (skipped is not None and identity == skipped):
        return
    try:
        with os.scandir(here) as entries:
            listed = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(
            f"pack: the folder '{display(below or root)}' cannot be read ({error.strerror}); "
            "correct its permissions or move it out of the source"
        ) from error
    for entry in listed:
        path = f"{below}/{entry.name}" if below else entry.name
        try:
            facts = entry.stat()
        except OSError:  # a link that leads nowhere, or a file removed since: listed, so that reading it is a reject
            yield path, -1
            continue
        if stat.S_ISDIR(facts.st_mode):
            yield from _walk(root, path, (*above, identity) if identity else above, skipped)
        elif stat.S_ISREG(facts.st_mode):
            yield path, facts.st_size


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of an existing path."""
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def listing_digest(kind: str, found: Iterable[Found]) -> str:
    """SHA-256 over the sorted relative paths and sizes: the same in whatever order files are listed."""
    lines = sorted(one.path.encode("utf-8", "surrogateescape") + b"\0%d\0" % one.size for one in found)
    return hashlib.sha256(kind.encode() + b"\0" + b"".join(lines)).hexdigest()


def span(shard: int, rows_per_shard: int, num_rows: int) -> range:
    """Positions of the rows of a shard."""
    first = shard * rows_per_shard
    if not 0 <= first < num_rows:
        raise IndexError(f"shard {shard} of {-(-num_rows // rows_per_shard)}")
    return range(first, min(first + rows_per_shard, num_rows))
