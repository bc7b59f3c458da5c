"""What the corruptions share: numbers of pixels, and two operations on them."""

from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from scipy import ndimage

Image = UInt8[np.ndarray, "s s 3"]
"""A square image, 0-255 RGB."""
Rng = np.random.Generator


def to_float(image: Image) -> Float[np.ndarray, "s s 3"]:
    """0-1."""
    return image / 255.0


def to_uint8(x: Float[np.ndarray, "s s 3"]) -> Image:
    """0-1 to 0-255, cut and not rounded, as in the published files."""
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)


def soften(x: Float[np.ndarray, "s s 3"], sigma: float) -> Float[np.ndarray, "s s 3"]:
    """Gaussian blur of every channel, the border repeated, cut at 4 sigmas."""
    return np.asarray(ndimage.gaussian_filter(x, (sigma, sigma, 0), mode="nearest", truncate=4.0))


def motion(x: Float[np.ndarray, "s s *c"], radius: float, sigma: float, degrees: float) -> Any:
    """Blur in one direction by half a Gaussian of 2 radius + 1 taps, one to the pixel, the border repeated: the motion
    blur of ImageMagick, with which the published files were made."""
    taps = 2 * int(np.ceil(radius)) + 1
    weights = np.exp(-(np.arange(taps) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    angle = np.deg2rad(degrees)
    rows, columns = (np.ceil(np.arange(taps) * part - 0.5).astype(int) for part in (np.sin(angle), np.cos(angle)))
    side = x.shape[0]
    at = np.arange(side)
    found = np.zeros_like(x, dtype=np.float64)
    for weight, row, column in zip(weights, rows, columns, strict=True):
        found += weight * x[np.clip(at + row, 0, side - 1)][:, np.clip(at + column, 0, side - 1)]
    return found


def magnified(x: Any, factor: float) -> Any:
    """The centre magnified to the same side, bilinear. x: [s s] or [s s c]."""
    side = x.shape[0]
    part = int(np.ceil(side / factor))
    start = (side - part) // 2
    cut = x[start : start + part, start : start + part]
    large = ndimage.zoom(cut, (factor, factor, *(1,) * (x.ndim - 2)), order=1)
    trim = (large.shape[0] - side) // 2
    return large[trim : trim + side, trim : trim + side]
