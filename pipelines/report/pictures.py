"""Pictures inside the page: small JPEGs as data URIs, so that the page is one file and opens without a network."""

import base64
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from viewkit.shards.codecs import encode_jpeg

BYTES_PER_PIXEL = 0.5
"""What a picture's JPEG may take, kept to by lowering the quality: 96 px cost 4.6 kB at most, usually 3. With the most
and largest pictures that the config allows the page stays below 3 MB."""

QUALITIES = (88, 80, 70, 60, 45, 30, 15, 5)


@dataclass(frozen=True)
class Picture:
    """uri: ``data:`` URI. height, width: px. alt: what a reader who does not see it is told."""

    uri: str
    height: int
    width: int
    alt: str


def picture(pixels: UInt8[np.ndarray, "h w 3"], alt: str) -> Picture:
    """A JPEG of at most `BYTES_PER_PIXEL`, or of the lowest of `QUALITIES`."""
    height, width, _ = pixels.shape
    pixels = np.ascontiguousarray(pixels)
    for quality in QUALITIES:
        data = encode_jpeg(pixels, quality=quality)
        if len(data) <= BYTES_PER_PIXEL * height * width:
            break
    return Picture("data:image/jpeg;base64," + base64.b64encode(data).decode(), height, width, alt)


def fit_inside(pixels: UInt8[np.ndarray, "h w 3"], side_px: int) -> UInt8[np.ndarray, "_a _b 3"]:
    """The whole image with its longer side at `side_px`; enlarged where it is smaller."""
    height, width, _ = pixels.shape
    scale = side_px / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))
