"""Digital: brightness, contrast, saturation, JPEG, pixelation, elastic transformation."""

import io

import numpy as np
from jaxtyping import Float
from PIL import Image as Pillow
from scipy import ndimage
from skimage.color import hsv2rgb, rgb2hsv

from viewkit.pipelines.evaluate.corruptions.pixels import Image, Rng, to_float, to_uint8


def brightness(image: Image, added: float, rng: Rng) -> Image:
    x = rgb2hsv(to_float(image))
    x[:, :, 2] = np.clip(x[:, :, 2] + added, 0, 1)
    return to_uint8(hsv2rgb(x))


def saturate(image: Image, level: tuple[float, float], rng: Rng) -> Image:
    factor, added = level
    x = rgb2hsv(to_float(image))
    x[:, :, 1] = np.clip(x[:, :, 1] * factor + added, 0, 1)
    return to_uint8(hsv2rgb(x))


def contrast(image: Image, factor: float, rng: Rng) -> Image:
    x = to_float(image)
    mean = x.mean(axis=(0, 1), keepdims=True)
    return to_uint8((x - mean) * factor + mean)


def jpeg_compression(image: Image, quality: int, rng: Rng) -> Image:
    file = io.BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=quality)
    with Pillow.open(file) as compressed:
        return np.array(compressed)


def pixelate(image: Image, share: float, rng: Rng) -> Image:
    """Shrunk to a share of the side and back, both by areas."""
    side = len(image)
    small = Pillow.fromarray(image).resize((int(side * share),) * 2, Pillow.Resampling.BOX)
    return np.array(small.resize((side, side), Pillow.Resampling.BOX))


def elastic_transform(image: Image, level: tuple[float, float, float], rng: Rng) -> Image:
    """A random affine map, given by where three corners of a centred square go, then smooth local displacements."""
    length, sigma, reach = level
    side = len(image)
    middle, arm = side // 2, side // 3
    corners = np.array(
        [[middle + arm, middle + arm], [middle + arm, middle - arm], [middle - arm, middle - arm]], float
    )
    moved = corners + rng.uniform(-reach, reach, (3, 2))  # (x, y)
    columns, rows = np.meshgrid(np.arange(side, dtype=np.float64), np.arange(side, dtype=np.float64))
    x, y = affine(moved, corners) @ np.stack([columns.ravel(), rows.ravel(), np.ones(side * side)])
    mapped = sampled(to_float(image), y.reshape(side, side), x.reshape(side, side), "mirror")
    shift = rng.uniform(-1, 1, (2, side, side))
    if sigma > 0:
        shift = ndimage.gaussian_filter(shift, (0, sigma, sigma), mode="reflect", truncate=3.0)
    return to_uint8(sampled(mapped, rows + length * shift[1], columns + length * shift[0], "reflect"))


def affine(start: Float[np.ndarray, "3 2"], end: Float[np.ndarray, "3 2"]) -> Float[np.ndarray, "2 3"]:
    """The affine map that takes three points to three others."""
    return np.linalg.solve(np.concatenate([start, np.ones((3, 1))], axis=1), end).T


def sampled(
    x: Float[np.ndarray, "s s 3"], rows: Float[np.ndarray, "s s"], columns: Float[np.ndarray, "s s"], border: str
) -> Float[np.ndarray, "s s 3"]:
    """Bilinear values at places in px."""
    channels = [ndimage.map_coordinates(x[:, :, c], [rows, columns], order=1, mode=border) for c in range(3)]
    return np.stack(channels, axis=2)
