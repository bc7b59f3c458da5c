"""JPEGs as cameras and libraries write them, checked without computing their pixels.

Sequential Huffman coding, 8 bits, YCbCr or grey, upright, without Adobe's marker: every decoder reads these alike, so
none is compared with another. What damage can hide in is the entropy-coded data, all of which is decoded here, by the
decoder that the trainer uses; only the inverse transforms are left out, by asking for an eighth of the side. That is a
quarter of the time that two decoders need for the pixels. Whatever is odd, or warned of, goes the long way (`ingest`).
"""

import io
import struct
import warnings
from dataclasses import dataclass

import simplejpeg
from PIL import ExifTags, Image

from viewkit.shards.codecs import DECODER_ERRORS

SEQUENTIAL = (0xC0, 0xC1)
"""Start-of-frame markers of baseline and extended sequential coding with Huffman codes."""

OTHER_FRAMES = frozenset(range(0xC2, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Those of progressive, lossless and arithmetic coding."""

WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD8)))
"""Markers that no segment follows: TEM and restarts, which have no place before a frame."""

SMALLEST = 8
"""libjpeg computes an eighth of a side, and no less, with one multiplication a block."""


@dataclass(frozen=True, slots=True)
class PlainJpeg:
    """What is noted of it. mode: Pillow's, ``RGB`` or ``L``. size: (height, width) in pixels. profile: it has one."""

    mode: str
    size: tuple[int, int]
    profile: bool


def plain_jpeg(data: bytes, max_pixels: int) -> PlainJpeg | None:
    """The image if it is plain, whole and of at most `max_pixels`; None for everything else, which is no refusal."""
    if not data.startswith(b"\xff\xd8\xff") or not _is_sequential(data):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
                odd = image.format != "JPEG" or image.mode not in ("RGB", "L") or "adobe" in image.info
                if odd or image.width * image.height > max_pixels or not _is_upright(image):
                    return None
                found = PlainJpeg(image.mode, (image.height, image.width), "icc_profile" in image.info)
        height, width = found.size
        side = {"min_height": -(-height // SMALLEST), "min_width": -(-width // SMALLEST)}
        simplejpeg.decode_jpeg(data, fastdct=False, fastupsample=False, strict=True, min_factor=SMALLEST, **side)
    except DECODER_ERRORS:
        return None
    except Warning:  # whatever Pillow finds odd
        return None
    return found


def _is_sequential(data: bytes) -> bool:
    """Whether the first frame is; False where a segment before it is not where the one before it ends."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in SEQUENTIAL:
            return True
        if marker in OTHER_FRAMES or marker in WITHOUT_LENGTH or marker == 0xFF:
            return False
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return False


def _is_upright(image: Image.Image) -> bool:
    return image.getexif().get(ExifTags.Base.Orientation, 1) == 1
