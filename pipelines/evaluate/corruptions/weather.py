"""Weather: fog, frost, snow, spatter."""

import numpy as np
from jaxtyping import Float, Int
from scipy import ndimage
from skimage.feature import canny

from viewkit.pipelines.evaluate.corruptions.pixels import Image, Rng, magnified, motion, to_float, to_uint8

GREY = np.array([0.299, 0.587, 0.114])
WATER, MUD = np.array([175, 238, 238]) / 255, np.array([63, 42, 20]) / 255
ICE = np.array([0.82, 0.91, 1.0])
FAR_PX = 20
"""Distance from a drop's edge from which on all water looks alike."""
EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


def fog(image: Image, level: tuple[float, float], rng: Rng) -> Image:
    """Clouds added, and the whole darkened so that the brightest value keeps its place."""
    strength, decay = level
    x = to_float(image)
    top = x.max()
    thick = x + strength * clouds(len(x), decay, rng)[:, :, None]
    return to_uint8(thick * top / (top + strength))


def frost(image: Image, level: tuple[float, float], rng: Rng) -> Image:
    """Ice in front of the image.

    The published files use parts of six photographs of frost, which are not shipped here; `ice` is drawn instead, so
    errors on frost are near the published ones and not the same.
    """
    own, other = level
    return to_uint8(own * to_float(image) + other * ice(len(image), rng))


def snow(image: Image, level: tuple[float, float, float, float, float, float, float], rng: Rng) -> Image:
    """Flakes blurred along their fall, over a brightened image; and the same flakes turned by 180 degrees."""
    mean, deviation, zoom, threshold, radius, sigma, own = level
    x = to_float(image)
    flakes = magnified(rng.normal(mean, deviation, x.shape[:2]), zoom)
    flakes = np.where(flakes < threshold, 0, flakes)
    flakes = np.floor(np.clip(flakes, 0, 1) * 255)
    flakes = np.floor(motion(flakes, radius, sigma, rng.uniform(-135, -45)) + 0.5)[:, :, None] / 255
    pale = np.maximum(x, (x @ GREY)[:, :, None] * 1.5 + 0.5)
    return to_uint8(own * x + (1 - own) * pale + flakes + flakes[::-1, ::-1])


def spatter(image: Image, level: tuple[float, float, float, float, float, int], rng: Rng) -> Image:
    """Drops of water, lit from one side, or of mud."""
    mean, deviation, sigma, threshold, strength, is_mud = level
    x = to_float(image)
    liquid = ndimage.gaussian_filter(rng.normal(mean, deviation, x.shape[:2]), sigma, mode="nearest", truncate=4.0)
    liquid = np.where(liquid < threshold, 0, liquid)
    if is_mud:
        cover = ndimage.gaussian_filter((liquid > threshold).astype(np.float64), strength, mode="nearest", truncate=4.0)
        cover = np.where(cover < 0.8, 0, cover)[:, :, None]
        return to_uint8(x * (1 - cover) + cover * MUD)
    drops = np.floor(np.clip(liquid, 0, 1) * 255)
    light = drops * lit(drops)
    return to_uint8(x + strength * light[:, :, None] / max(light.max(), 1e-12) * WATER)


def lit(drops: Float[np.ndarray, "s s"]) -> Float[np.ndarray, "s s"]:
    """Relief of the drops by the distance from their edges, as light from one side shows it; 0-255."""
    edges = canny(drops, sigma=0, low_threshold=50, high_threshold=150)
    far = np.minimum(ndimage.distance_transform_edt(~edges), FAR_PX) if edges.any() else np.full(drops.shape, FAR_PX)
    smooth = np.floor(ndimage.uniform_filter(far.astype(np.float64), 3, mode="mirror") + 1e-9).astype(np.int64)
    relief = np.clip(ndimage.correlate(equalised(smooth), EMBOSS, mode="mirror"), 0, 255)
    return np.asarray(ndimage.uniform_filter(relief.astype(np.float64), 3, mode="mirror"))


def equalised(values: Int[np.ndarray, "s s"]) -> Int[np.ndarray, "s s"]:
    """Values 0-255 replaced so that their cumulative histogram is a straight line."""
    counts = np.bincount(values.ravel(), minlength=256)
    first = counts[np.flatnonzero(counts)[0]]
    if first == values.size:
        return values
    table = np.round((counts.cumsum() - first) / (values.size - first) * 255).clip(0, 255).astype(np.int64)
    return np.asarray(table[values])


def clouds(side: int, decay: float, rng: Rng) -> Float[np.ndarray, "side side"]:
    """A fractal landscape of heights 0-1 by midpoint displacement on a torus (diamond-square), cut to `side`.

    Each time the grid becomes twice as fine, the square of the displacement's size falls by `decay` squared.
    """
    size = 1 << (side - 1).bit_length()
    heights = np.zeros((size, size))
    step, wobble = size, 100.0
    while step >= 2:
        half = step // 2
        corner = heights[::step, ::step]
        noise = rng.uniform(-(wobble**2), wobble**2, (3, *corner.shape))
        below = corner + np.roll(corner, -1, axis=0)
        centre = (below + np.roll(below, -1, axis=1)) / 4 + noise[0]
        beside = corner + np.roll(corner, -1, axis=1)
        heights[half::step, half::step] = centre
        heights[::step, half::step] = (centre + np.roll(centre, 1, axis=0) + beside) / 4 + noise[1]
        heights[half::step, ::step] = (centre + np.roll(centre, 1, axis=1) + below) / 4 + noise[2]
        step, wobble = half, wobble / decay
    heights -= heights.min()
    return (heights / heights.max())[:side, :side]


def ice(side: int, rng: Rng) -> Float[np.ndarray, "side side 3"]:
    """A picture of frost, 0-1: ridges of two landscapes as needles, on a pale ground; a bluish white."""
    needles = sum(1 - np.abs(2 * clouds(side, decay, rng) - 1) for decay in (1.6, 2.2)) / 2
    ground = clouds(side, 2.5, rng)
    return np.clip(0.15 + 0.65 * needles**3 + 0.25 * ground, 0, 1)[:, :, None] * ICE
