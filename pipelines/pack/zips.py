"""Source: zip files, one or a folder of them; their images are read as if they lay in a folder, and never unpacked."""

import os
import stat
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import display, row_key, shuffled
from viewkit.pipelines.pack.listing import (
    IMAGE_SUFFIXES,
    Found,
    Listing,
    Texts,
    annotations_among,
    listing_digest,
)
from viewkit.pipelines.pack.numbered import ClassFolders
from viewkit.pipelines.pack.raw import PATH, extension_of, reject_file
from viewkit.shards.codecs import one_line
from viewkit.shards.errors import DataError
from viewkit.shards.files import most_open_files, refuse_too_many_open
from viewkit.shards.row import Reject, Row
from viewkit.shards.stores.mounts import local_file

DAMAGED = (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, EOFError, OverflowError, RuntimeError)
"""What `zipfile` raises for files that are cut, damaged or made to do harm."""
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions that can be undone a piece at a time; the others may fill the memory from a few bytes."""
ENCRYPTED = 1
PIECE = 1 << 20


def open_zips(root: Path, listing: Listing, config: PackConfig) -> "ZipSources":
    return ZipSources(
        root,
        listing.zips,
        labels=config.labels,
        rows_per_shard=config.rows_per_shard,
        max_bytes=config.max_file_mb * 10**6,
        notes=listing.beside("zips"),
    )


class ZipSources(ClassFolders):
    """Every image-looking member of zip files; its path is the zip's own, ``/``, and the member's.

    labels: with ``folders``, a row's class is its first folder below those that all images share.
    """

    def __init__(
        self,
        root: Path,
        zips: Sequence[Found],
        *,
        labels: str,
        rows_per_shard: int,
        max_bytes: int,
        notes: Sequence[str],
    ) -> None:
        self._root, self._zips = os.fspath(root), tuple(found.path for found in zips)
        self._rows_per_shard, self._max_bytes = rows_per_shard, max_bytes
        self._opened: OrderedDict[int, tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]] = OrderedDict()
        self.digest = listing_digest("zips", zips)
        paths: list[tuple[int, str]] = []
        left_out = 0
        for number in range(len(zips)):
            images, others = self._images(number)
            left_out += others
            paths += [(number, name) for name in images]
            self._close_all_but(0)
        if not paths:
            names = ", ".join(f"'{display(found.path)}'" for found in zips[:3])
            raise DataError(f"pack: {names} holds no image; zip files with images are needed")
        full = [f"{self._zips[number]}/{name}" for number, name in paths]
        order = shuffled(full)
        self._paths = Texts(full[i] for i in order)
        self._zip_of = np.array([paths[i][0] for i in order], dtype=np.int32)
        self._above = len(_shared_folder([name for _, name in paths]))
        classes = sorted({name for i in range(len(full)) if (name := self.class_name(i)) is not None})
        self.classes: tuple[str, ...] | None = tuple(classes) if labels == "folders" else None
        note = f"{left_out} members of the zip files are no images and were left out"
        self.notes: tuple[str, ...] = (*notes, *((note,) if left_out else ()))

    @property
    def num_rows(self) -> int:
        return len(self._paths)

    def key(self, i: int) -> str:
        return row_key(self._paths[i])

    def class_name(self, i: int) -> str | None:
        """The member's first folder below the shared ones; None of one that lies beside the folders."""
        first, slash, _ = self._member(i)[self._above :].partition("/")
        return first if slash else None

    def row(self, i: int) -> Row | Reject:
        path, number = self._paths[i], int(self._zip_of[i])
        archive, members = self._open(number)
        member = members.get(self._member(i))
        if member is None:
            raise DataError(f"pack: '{display(self._zips[number])}' has changed since it was listed; pack it again")
        data = self._data(archive, member, path)
        if isinstance(data, Reject):
            return data
        own = self.class_fields(i, path)
        if isinstance(own, Reject):
            return own
        return Row(row_key(path), {extension_of(path): data, PATH: path.encode("utf-8", "surrogateescape"), **own})

    def _member(self, i: int) -> str:
        return self._paths[i][len(self._zips[int(self._zip_of[i])]) + 1 :]

    def _data(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str) -> bytes | Reject:
        """At most the declared size is ever held, whatever the compressed bytes say."""
        if member.flag_bits & ENCRYPTED:
            return reject_file(path, "unreadable", "it is encrypted; unpack the zip file first")
        if member.compress_type not in METHODS:
            detail = f"zip compression {member.compress_type}; stored and deflated members are read, unpack it first"
            return reject_file(path, "unreadable", detail)
        if member.file_size > self._max_bytes:
            return reject_file(path, "too_many_bytes", f"{member.file_size}; max_file_mb allows {self._max_bytes}")
        try:
            with archive.open(member) as stream:
                data = b"".join(iter(lambda: stream.read(PIECE), b""))
        except (zlib.error, *DAMAGED) as error:
            return reject_file(path, "undecodable", f"damaged in the zip file: {one_line(error)}")
        if len(data) != member.file_size:
            return reject_file(path, "truncated", f"{len(data)} of {member.file_size} bytes are in the zip file")
        return data

    def _open(self, number: int) -> tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]:
        """The zip file and its members by name; those that were used last stay open."""
        if number not in self._opened:
            name = self._zips[number]
            self._close_all_but(most_open_files() - 1)
            try:
                archive = zipfile.ZipFile(local_file(self._root, name))
            except (struct.error, *DAMAGED) as error:
                refuse_too_many_open(error, name)
                raise DataError(
                    f"pack: the zip file '{display(name)}' is cut or damaged, or no zip file: {one_line(error)}; copy "
                    "it again"
                ) from error
            members = {info.filename: info for info in archive.infolist()}
            if len(members) != len(archive.infolist()):
                raise DataError(f"pack: the zip file '{display(name)}' holds two members of one name; unpack it first")
            self._opened[number] = archive, members
        self._opened.move_to_end(number)
        return self._opened[number]

    def _close_all_but(self, most: int) -> None:
        while len(self._opened) > most:
            _, (archive, _) = self._opened.popitem(last=False)
            archive.close()

    def _images(self, number: int) -> tuple[list[str], int]:
        """Names of the images of a zip file, and how many other files it holds."""
        _, members = self._open(number)
        files = [info for info in members.values() if not info.is_dir()]
        images = [info.filename for info in files if _is_image(info)]
        belong = set(annotations_among(images))
        return [name for name in images if name not in belong], len(files) - len(images) + len(belong)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": OrderedDict()}


def _is_image(info: zipfile.ZipInfo) -> bool:
    """By its name; hidden names (``__MACOSX/``, ``.thumb.jpg``) and links are none."""
    parts = info.filename.split("/")
    hidden = any(part.startswith(".") for part in parts) or parts[0] == "__MACOSX"
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    return not hidden and not is_link and os.path.splitext(info.filename.lower())[1] in IMAGE_SUFFIXES


def _shared_folder(names: Sequence[str]) -> str:
    """The folders, with their last ``/``, that all names begin with."""
    shared = names[0].split("/")[:-1]
    for name in names:
        parts = name.split("/")[:-1]
        same = takewhile(lambda pair: pair[0] == pair[1], zip(shared, parts, strict=False))
        shared = [part for part, _ in same]
    return "".join(f"{part}/" for part in shared)
