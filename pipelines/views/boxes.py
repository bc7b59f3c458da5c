"""Crop boxes (top, left, height, width) in fractions of the image: shapes, positions, overlap."""

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from viewkit.pipelines.views.portable import exp, log
from viewkit.shards.errors import ConfigError

Numbers = Float64[np.ndarray, " m"]


def box_extent(area: Numbers, log_aspect: Numbers, image_aspect: Numbers) -> tuple[Numbers, Numbers]:
    """Height and width, in fractions, of a crop with the given share of the image's area.

    log_aspect: log of width / height of the crop in pixels; image_aspect: width / height of the image. Where the
    aspect does not fit into the image it is moved to the nearest one that does, so **the area is kept exactly** on
    any image. torchvision samples the area again up to ten times and then takes a centre crop; JointCrop's code takes
    the whole image; both bend the distribution of the areas.
    """
    aspect = np.clip(exp(log_aspect), area * image_aspect, image_aspect / area)
    height = np.minimum(np.sqrt(area * image_aspect / aspect), 1.0)
    return height, np.minimum(np.sqrt(area * aspect / image_aspect), 1.0)


def refitted(
    boxes: Float64[np.ndarray, "m 4"], old: Int[np.ndarray, "m 2"], new: Int[np.ndarray, "m 2"]
) -> Float64[np.ndarray, "m 4"]:
    """Crops of images of sizes `old` (height, width), on images of sizes `new`: the same share of the area and the same
    aspect in pixels, as far as that fits, and the same shares of the room that is left above and beside them."""
    top, left, height, width = boxes.T
    aspects = old[:, 1] / old[:, 0], new[:, 1] / new[:, 0]
    extent = np.stack(box_extent(height * width, log(width / height * aspects[0]), aspects[1]), axis=1)
    room = 1 - np.stack([height, width], axis=1)
    share = np.stack([top, left], axis=1) / np.where(room > 0, room, 1)
    return np.concatenate([np.clip(share, 0, 1) * (1 - extent), extent], axis=1)


def whole_extents(
    area: Numbers, log_aspect: Numbers, sizes: Int[np.ndarray, "m 2"]
) -> tuple[Float64[np.ndarray, "m 2"], Bool[np.ndarray, " m"]]:
    """(height, width) in whole pixels of crops of that area and aspect, rounded as torchvision's RandomResizedCrop
    rounds them, and which of them fit into images of `sizes` (height, width)."""
    pixels, aspect = area * sizes[:, 0] * sizes[:, 1], exp(log_aspect)
    extents = np.rint(np.sqrt(np.stack([pixels / aspect, pixels * aspect], axis=1)))
    return extents, ((extents >= 1) & (extents <= sizes)).all(axis=1)


def central_extents(sizes: Int[np.ndarray, "m 2"], aspect: Float64[np.ndarray, "m 2"]) -> Float64[np.ndarray, "m 2"]:
    """(height, width) in whole pixels of the largest crops whose width / height lies in `aspect`: what torchvision's
    RandomResizedCrop takes, centred, after ten tries that did not fit."""
    height, width = sizes[:, 0].astype(np.float64), sizes[:, 1].astype(np.float64)
    ratio = width / height
    extents = np.stack([height, width], axis=1)
    extents[:, 0] = np.where(ratio < aspect[:, 0], np.rint(width / aspect[:, 0]), height)
    extents[:, 1] = np.where(ratio > aspect[:, 1], np.rint(height * aspect[:, 1]), width)
    return np.clip(extents, 1, sizes)


def box_corner(extent: Numbers, position: Numbers, low: Numbers, high: Numbers) -> Numbers:
    """Upper or left edge of crops of `extent` whose centres lie in [low, high], clipped to keep them inside.

    position: 0 ... 1 between the first and the last place. With [low, high] = [0, 1] the places are 0 ... 1 - extent.
    This is ContrastiveCrop's rule (Peng et al. 2022, Alg. 1).
    """
    first = np.clip(low - extent / 2, 0.0, 1 - extent)
    last = np.clip(high - extent / 2, 0.0, 1 - extent)
    return first + (last - first) * position


def whole_corners(
    extents: Float64[np.ndarray, "m 2"],
    positions: Float64[np.ndarray, "m 2"],
    centre: Float64[np.ndarray, "m 4"],
    sizes: Int[np.ndarray, "m 2"],
) -> Float64[np.ndarray, "m 2"]:
    """(top, left) in whole pixels of crops of `extents` px whose centres lie in the boxes `centre` (fractions).

    Every place between the first and the last is equally likely when positions are uniform.
    """
    found = np.empty_like(extents)
    for axis in range(2):
        low, high = centre[:, axis], centre[:, axis] + centre[:, axis + 2]
        half, room = extents[:, axis] / 2, sizes[:, axis] - extents[:, axis]
        first = np.clip(np.floor(low * sizes[:, axis] - half + 0.5), 0, room)
        last = np.clip(np.floor(high * sizes[:, axis] - half + 0.5), first, room)
        found[:, axis] = np.minimum(first + np.floor(positions[:, axis] * (last - first + 1)), last)
    return found


def beta_candidate(u: Numbers, v: Numbers, a: float) -> tuple[Numbers, np.ndarray]:
    """One try for a Beta(a, a) number from two uniforms: (value, accepted).

    Joehnk's method (1964): u^(1/a) / (u^(1/a) + v^(1/a)) where the sum is at most 1, which holds half of the time or
    more for a <= 1.
    """
    x, y = (exp(np.maximum(log(np.maximum(part, 2.0**-54)) / a, -340.0)) for part in (u, v))
    return x / (x + y), x + y <= 1


def overlap(a: Float[np.ndarray, "*any 4"], b: Float[np.ndarray, "*any 4"]) -> Float[np.ndarray, "*any"]:
    """Intersection over union of crops of one image; 0 where they do not touch."""
    top, left = np.maximum(a[..., 0], b[..., 0]), np.maximum(a[..., 1], b[..., 1])
    bottom = np.minimum(a[..., 0] + a[..., 2], b[..., 0] + b[..., 2])
    right = np.minimum(a[..., 1] + a[..., 3], b[..., 1] + b[..., 3])
    shared = np.maximum(bottom - top, 0) * np.maximum(right - left, 0)
    return np.asarray(shared / (a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - shared))


def foreground_boxes(maps: Float[np.ndarray, "n h w"], threshold: float = 0.1) -> Float64[np.ndarray, "n 4"]:
    """ContrastiveCrop's boxes: the rows and columns whose largest value exceeds a threshold (Peng et al. 2022, eq. 2).

    maps: any foreground map, e.g. a sum over channels or a principal component of patch tokens; each is first
    stretched to 0-1. A flat map, or one where nothing passes, gives the whole image. On ViT maps thresholds of 0.3-0.5
    are needed, below them the box is nearly always the whole image (the authors' own advice).
    """
    if not 0 <= threshold < 1:
        raise ConfigError(f"threshold is {threshold}; needed a number in [0, 1)")
    low, high = maps.min(axis=(1, 2), keepdims=True), maps.max(axis=(1, 2), keepdims=True)
    passed = (maps - low) > threshold * (high - low)  # n h w
    boxes = np.zeros((len(maps), 4))
    for axis, lines in ((0, passed.any(axis=2)), (1, passed.any(axis=1))):  # rows n h, columns n w
        count = lines.shape[1]
        first = np.where(lines.any(axis=1), lines.argmax(axis=1), 0)
        last = np.where(lines.any(axis=1), count - lines[:, ::-1].argmax(axis=1), count)
        boxes[:, axis], boxes[:, axis + 2] = first / count, (last - first) / count
    return boxes
