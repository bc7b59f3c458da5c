"""The key of a row, from its relative path alone.

A key is a readable slug of the path and the first 48 bits of the path's SHA-256, so it is unique, has no dots, survives
every file system and archive, and is the same on every machine and in any listing order. Paths are NFC-normalised
first: macOS lists the same names in another Unicode form than Linux.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from viewkit.shards.errors import DataError

SLUG_CHARS = 64
HASH_BYTES = 6


def path_digest(path: str) -> bytes:
    """SHA-256 of a relative POSIX path. Bytes that are not UTF-8 stand in it as `os.fsdecode` gives them."""
    return hashlib.sha256(unicodedata.normalize("NFC", path).encode("utf-8", "surrogateescape")).digest()


def row_key(path: str) -> str:
    """``cats/tom 01.jpg`` -> ``cats_tom_01_`` and 12 hexadecimal digits; at most 77 characters of ``[A-Za-z0-9_-]``.

    The slug is the path without its extension, with every run of other characters turned into ``_``, cut from the left.
    """
    folder, slash, name = unicodedata.normalize("NFC", path).rpartition("/")
    stem = folder + slash + (name.rpartition(".")[0] or name)
    slug = re.sub(r"[^A-Za-z0-9_-]+", "_", stem)[-SLUG_CHARS:].strip("_-") or "image"
    return f"{slug}_{path_digest(path)[:HASH_BYTES].hex()}"


def shuffled(paths: Sequence[str]) -> list[int]:
    """Indices of `paths` in the order of the rows: by the paths' SHA-256, so every shard is a fair mix of the source.

    Raises `DataError` when two paths give one key: two Unicode spellings of one name, or (never seen) a collision.
    """
    digests = [path_digest(path) for path in paths]
    order = sorted(range(len(paths)), key=digests.__getitem__)
    for one, other in pairwise(order):
        if digests[one][:HASH_BYTES] == digests[other][:HASH_BYTES] and row_key(paths[one]) == row_key(paths[other]):
            raise DataError(
                f"pack: '{display(paths[one])}' and '{display(paths[other])}' give the same key "
                f"'{row_key(paths[one])}'; rename one of them"
            )
    return order


def display(path: str) -> str:
    """A path for messages: one line, printable, valid Unicode; other characters are backslash escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)


def plain(path: str) -> str:
    """A path for KEY.json: as it is, but with bytes that are not UTF-8 as backslash escapes, so it is valid Unicode."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
