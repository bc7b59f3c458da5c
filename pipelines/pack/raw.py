"""What a source hands to the decoding policy: a raw row, or a reject for what it could not even read.

fields of a raw row: the image's bytes under its extension as found (``jpeg``, ``tif``, ...), ``cls`` and ``json`` if
the source has them, further members of a tar's sample under their own extensions, and two names that no file can have.
"""

import os

from viewkit.pipelines.engine.rejects import reject
from viewkit.pipelines.pack.keys import display, row_key
from viewkit.pipelines.pack.listing import IMAGE_SUFFIXES
from viewkit.shards.row import Reject

PATH = "/path"
"""Path of the image below its source, UTF-8 (undecodable bytes as they are)."""

LABEL = "/label"
"""Name of the class, if the source has names."""

IMAGES = frozenset(suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES)
"""Extensions of the field that holds the image."""


def extension_of(path: str) -> str:
    """``a/B.JPG`` -> ``jpg``."""
    return os.path.splitext(path)[1].lower().lstrip(".")


def reject_file(path: str, reason: str, detail: str, *, key: str | None = None) -> Reject:
    """The reject of the file at a relative path; the detail names it, in one printable line.

    key: where it is not the path's own, as in tars, whose keys come from the samples' names.
    """
    return reject(row_key(path) if key is None else key, reason, f"{display(path)}: {display(detail)}")
