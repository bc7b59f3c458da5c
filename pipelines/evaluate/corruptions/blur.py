"""Blur: Gaussian, glass, defocus, motion, zoom."""

import numpy as np
from jaxtyping import Float
from scipy import ndimage, signal

from viewkit.pipelines.evaluate.corruptions.pixels import Image, Rng, magnified, motion, soften, to_float, to_uint8

WIDE = 8
"""Radius up to which a disk lies in a kernel of 17 px and its edge is softened over 3 px; then over 5 px."""


def gaussian_blur(image: Image, sigma: float, rng: Rng) -> Image:
    return to_uint8(soften(to_float(image), sigma))


def glass_blur(image: Image, level: tuple[float, int, int], rng: Rng) -> Image:
    """Pixels displaced within a neighbourhood, between two blurs.

    From the last pixel to the first, each takes the value of a neighbour. The published program means to swap the two;
    as both sides of its assignment are views of one array it copies, and the published files are made so.
    """
    sigma, reach, rounds = level
    side = len(image)
    blurred = to_uint8(soften(to_float(image), sigma))
    places = np.arange(side - reach, reach, -1)
    at = (places[:, None] * side + places[None, :]).ravel().tolist()
    source = list(range(side * side))
    for _ in range(rounds):
        shift = rng.integers(-reach, reach, (len(at), 2))
        for place, step in zip(at, (shift[:, 1] * side + shift[:, 0]).tolist(), strict=True):
            source[place] = source[place + step]
    displaced = blurred.reshape(-1, 3)[source].reshape(image.shape)
    return to_uint8(soften(to_float(displaced), sigma))


def defocus_blur(image: Image, level: tuple[float, float], rng: Rng) -> Image:
    """Mean over a disk."""
    kernel = disk(*level)
    reach = len(kernel) // 2
    padded = np.pad(to_float(image), ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    return to_uint8(signal.fftconvolve(padded, kernel[:, :, None], mode="valid", axes=(0, 1)).round(12))


def disk(radius: float, sigma: float) -> Float[np.ndarray, "k k"]:
    """A disk that sums to one, its edge softened by a Gaussian of 3 or 5 taps."""
    reach, taps = (WIDE, 3) if radius <= WIDE else (int(radius), 5)
    x = np.arange(-reach, reach + 1)
    flat = (x[:, None] ** 2 + x[None, :] ** 2 <= radius**2).astype(np.float64)
    line = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * sigma**2))
    line /= line.sum()
    for axis in range(2):
        flat = ndimage.correlate1d(flat, line, axis=axis, mode="mirror")
    return np.asarray(flat / flat.sum())


def motion_blur(image: Image, level: tuple[float, float], rng: Rng) -> Image:
    """Along one direction within 45 degrees of the horizontal."""
    blurred = motion(image.astype(np.float64), *level, rng.uniform(-45, 45))
    return np.clip(np.floor(blurred + 0.5), 0, 255).astype(np.uint8)


def zoom_blur(image: Image, factors: Float[np.ndarray, " z"], rng: Rng) -> Image:
    """Mean of the image and of its centre magnified by each factor."""
    x = to_float(image)
    return to_uint8((x + sum(magnified(x, float(factor)) for factor in factors)) / (len(factors) + 1))
