"""Noise: Gaussian, shot, impulse, speckle."""

from viewkit.pipelines.evaluate.corruptions.pixels import Image, Rng, to_float, to_uint8


def gaussian_noise(image: Image, sigma: float, rng: Rng) -> Image:
    return to_uint8(to_float(image) + rng.normal(0, sigma, image.shape))


def shot_noise(image: Image, photons: float, rng: Rng) -> Image:
    """Poisson counts of so many photons at full brightness."""
    return to_uint8(rng.poisson(to_float(image) * photons) / photons)


def impulse_noise(image: Image, share: float, rng: Rng) -> Image:
    """Values, not whole pixels, become 0 or 255, each half of the time."""
    found = image.copy()
    hit = rng.random(image.shape) < share
    found[hit] = 255 * (rng.random(image.shape) < 0.5)[hit]
    return found


def speckle_noise(image: Image, sigma: float, rng: Rng) -> Image:
    """Gaussian noise in proportion to the value."""
    x = to_float(image)
    return to_uint8(x + x * rng.normal(0, sigma, image.shape))
