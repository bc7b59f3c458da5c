"""The one vocabulary of reject reasons, and the one way to decode the image of a stored row."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import UInt8

from viewkit.shards.codecs import decode_image
from viewkit.shards.errors import DataError
from viewkit.shards.row import Reject

REASONS: Mapping[str, str] = {
    "unreadable": "the file cannot be opened or read",
    "too_many_bytes": "the file is larger than max_file_mb",
    "empty": "the file has no bytes",
    "not_an_image": "no image format is recognised",
    "unsupported_format": "an image format that is not decoded here, e.g. HEIC",
    "unsupported_mode": "pixels without a stated range or colour space: float, 32-bit, LAB",
    "too_many_pixels": "the declared size exceeds max_pixels",
    "too_small": "the shorter side is below min_side_px",
    "truncated": "the file ends before the image does",
    "undecodable": "the image is damaged in another way",
    "no_image": "a tar's sample without an image",
    "several_images": "a tar's sample with more than one image",
    "bad_member": "a tar's sample with an extension of odd characters",
    "bad_label": "KEY.cls is not a class index",
    "bad_json": "KEY.json is not JSON",
    "no_label": "labels 'folders', and the file is in no class folder",
    "non_finite": "a network's output for this image is NaN or infinite",
    "near_constant": "a generated view of a single colour",
    "no_generated_view": "a view is needed from the generated image, and `genview` rejected this row",
    "not_in_subset": "left out on purpose, by --subset or --only",
    "no_pairs": "`pairs` rejected this row",
}
"""Every reason for which any stage rejects a row, and what it means; docs/columns.md lists them."""


def reject(key: str, reason: str, detail: str) -> Reject:
    """A reject whose reason is one of `REASONS`."""
    assert reason in REASONS, reason
    return Reject(key, reason, detail)


def decode_or_reject(key: str, fields: Mapping[str, bytes]) -> UInt8[np.ndarray, "h w 3"] | Reject:
    """The row's image as RGB, 0-255, or the reject ``undecodable``. A damaged shard is still a `DataError`, raised
    where its bytes are read."""
    try:
        return decode_image(fields)
    except DataError as error:
        return reject(key, "undecodable", str(error))
