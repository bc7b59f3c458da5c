"""What a source hands to the decoding policy: a raw row, or a reject for what it could not even read.

fields of a raw row: the image's bytes under its extension as found (``jpeg``, ``tif``, ...), ``cls`` and ``json`` if
the source has them, further members of a tar's sample under their own extensions, and two names that no file can have.
"""

import os

from viewkit.pipelines.pack.keys import display, row_key
from viewkit.pipelines.pack.listing import IMAGE_SUFFIXES
from viewkit.shards.row import Reject

SOURCE = "/source"
"""Relative path of the image in its source, UTF-8 (undecodable bytes as they are)."""

LABEL = "/label"
"""Name of the class, if the source has names."""

IMAGES = frozenset(suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES)
"""Extensions of the field that holds the image."""

REASONS = {
    "unreadable": "the file cannot be opened or read",
    "too_many_bytes": "the file is larger than max_file_mb",
    "empty": "the file has no bytes",
    "not_an_image": "no image format is recognised",
    "unsupported_format": "an image format that is not decoded here, e.g. HEIC",
    "unsupported_mode": "pixels without a stated range or colour space: float, 32-bit, LAB",
    "too_many_pixels": "the declared size exceeds max_pixels",
    "too_small": "the shorter side is below min_side_px",
    "truncated": "the file ends before the image does",
    "undecodable": "damaged in another way",
    "no_image": "a tar's sample without an image",
    "several_images": "a tar's sample with more than one image",
    "bad_member": "a tar's sample with an extension of odd characters",
    "bad_label": "KEY.cls is not a class index",
    "bad_json": "KEY.json is not JSON",
    "no_label": "labels 'folders', and the file is in no class folder",
}
"""Every reason for which `pack` refuses a row."""


def extension_of(path: str) -> str:
    """``a/B.JPG`` -> ``jpg``."""
    return os.path.splitext(path)[1].lower().lstrip(".")


def refuse(path: str, reason: str, detail: str, *, key: str | None = None) -> Reject:
    """The reject of the file at a relative path; the detail names it, in one printable line.

    key: where it is not the path's own, as in tars, whose keys come from the samples' names.
    """
    assert reason in REASONS, reason
    return Reject(row_key(path) if key is None else key, reason, f"{display(path)}: {display(detail)}")
