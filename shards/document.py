"""Sealed JSON documents: receipts and identities in which any changed byte is found.

A document is rendered in one canonical way and ends with the SHA-256 of everything else it says. Reading renders it
again and compares bytes, so a flipped bit in a value, a name, a space or the seal itself is an error.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from viewkit.shards.errors import DataError, RefusedError
from viewkit.shards.files import read_file, write_atomic, write_first
from viewkit.shards.stores.mounts import mirror_of

FORMAT = 1
"""Version of what lies on disk; a reader refuses datasets with a larger one."""


def canonical(content: Any) -> bytes:
    """The one rendering of a JSON value that digests are made of: sorted names, ASCII, no spaces, no NaN."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest(content: Any) -> str:
    """SHA-256 of the canonical rendering, as hex."""
    return hashlib.sha256(canonical(content)).hexdigest()


def render(content: dict[str, Any]) -> bytes:
    """The sealed document of `content`: one top-level field a line, so that people and `diff` can read it."""
    sealed = {**content, "format": FORMAT}
    sealed["seal"] = digest(sealed)
    lines = [f" {json.dumps(name)}: {canonical(sealed[name]).decode()}" for name in sorted(sealed)]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def write_document(path: Path, content: dict[str, Any]) -> None:
    mirror = mirror_of(path)
    if mirror is None:
        write_atomic(path, render(content))
    else:
        mirror.put(path, render(content))


def write_first_document(path: Path, content: dict[str, Any]) -> bool:
    """Write it unless a document is there; whether it was written.

    In a store an answer may be lost, so there one's own content counts as written, whenever that was.
    """
    mirror = mirror_of(path)
    return write_first(path, render(content)) if mirror is None else mirror.create(path, render(content))


def read_document(path: Path, remedy: str) -> dict[str, Any]:
    """Content of the sealed document at `path`, without `format` and `seal`.

    Raises `RefusedError` when a newer viewkit wrote it, `DataError` (ending in `remedy`) when any byte is not as it
    was written.
    """
    raw = read_file(path)
    try:
        content = json.loads(raw)
        version = content["format"]
        content.pop("seal")
        content.pop("format")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: damaged, it is not a document that viewkit wrote; {remedy}") from error
    if isinstance(version, int) and version > FORMAT:
        raise RefusedError(
            f"{path}: written in format {version}, and this viewkit reads up to format {FORMAT}; "
            "install a newer viewkit, or restore the file from a copy if no newer one wrote it"
        )
    try:
        intact = render(content) == raw
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise DataError(f"{path}: damaged, its content does not match its seal; {remedy}")
    return dict(content)
