"""A recipe: the numbers that were sampled for one view, all of them.

Rows are float32 and lie in `.npy` arrays whose last axis is `FIELDS`. Coordinates are fractions of the image, so one
recipe renders at any side. Every row carries the version of this layout, so a file from another layout is refused
instead of being misread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from jaxtyping import Float32, Int, Shaped

from viewkit.shards.errors import DataError

VERSION = 1
NO_SOLARIZE = 2.0
"""A threshold no value reaches: nothing is inverted."""

ORDERS: tuple[tuple[int, ...], ...] = tuple(permutations(range(4)))
"""Orders of (0 brightness, 1 contrast, 2 saturation, 3 hue), lexicographic; the field `order` is an index into it."""


@dataclass(frozen=True)
class Field:
    """One number of a recipe: its range (both ends allowed), the value that changes nothing, and what it means."""

    name: str
    low: float
    high: float
    neutral: float
    whole: bool
    help: str


TABLE: tuple[Field, ...] = (
    Field("version", VERSION, VERSION, VERSION, True, "layout of the row"),
    Field("spec", 0, 2**20, 0, True, "index of the policy's view specification that was drawn from"),
    Field("source", 0, 1, 0, True, "0: the original image, 1: the generated one"),
    Field("side", 1, 2**15, 1, True, "side of the view, in px, that `sigma` refers to"),
    Field("top", 0, 1, 0, False, "upper edge of the crop, fraction of the image's height"),
    Field("left", 0, 1, 0, False, "left edge of the crop, fraction of the image's width"),
    Field("height", 0, 1, 1, False, "height of the crop, fraction of the image's height, above 0"),
    Field("width", 0, 1, 1, False, "width of the crop, fraction of the image's width, above 0"),
    Field("flip", 0, 1, 0, True, "1: mirrored left to right"),
    Field("brightness", 0, 100, 1, False, "factor; 1 = not applied"),
    Field("contrast", 0, 100, 1, False, "factor around the mean grey; 1 = not applied"),
    Field("saturation", 0, 100, 1, False, "factor around the pixel's grey; 1 = not applied"),
    Field("hue", -0.5, 0.5, 0, False, "shift in turns of the colour circle; 0 = not applied"),
    Field("order", 0, 23, 0, True, "order of brightness, contrast, saturation, hue: index into `ORDERS`"),
    Field("grey", 0, 2, 0, True, "0: coloured, 1: grey after the jitter, 2: grey before the jitter"),
    Field("sigma", 0, 1000, 0, False, "standard deviation of the Gaussian blur, px at `side`; 0 = none"),
    Field("solarize", 0, NO_SOLARIZE, NO_SOLARIZE, False, "values (0-1) from here on are inverted; above 1 = none"),
    Field("op_1", 0, 13, 0, True, "first RandAugment operation, index into `randaugment.OPERATIONS`; 0 = none"),
    Field("strength_1", -1000, 1000, 0, False, "its strength, in the operation's own unit"),
    Field("op_2", 0, 13, 0, True, "second RandAugment operation"),
    Field("strength_2", -1000, 1000, 0, False, "its strength"),
)
FIELDS: tuple[str, ...] = tuple(field.name for field in TABLE)
NUM_FIELDS = len(FIELDS)
BOX = slice(FIELDS.index("top"), FIELDS.index("width") + 1)
"""The four fields (top, left, height, width)."""

SOURCE = FIELDS.index("source")
ORIGINAL, GENERATED = 0, 1
"""Values of the field `source`: which image the view is cropped from."""

EDGE = 1e-6
"""How far rounding to float32 may push a box over the image's edge, as a fraction."""


def column(name: str) -> int:
    """Index of a field in the last axis of a recipe array."""
    return FIELDS.index(name)


def neutral_recipes(count: int, side_px: int) -> Float32[np.ndarray, "n p"]:
    """Recipes that only resize the whole image."""
    recipes = np.tile(np.array([field.neutral for field in TABLE], dtype=np.float32), (count, 1))
    recipes[:, column("side")] = side_px
    return recipes


def centre_squares(images: Sequence[Shaped[Any, "_h _w 3"]], side_px: int) -> Float32[np.ndarray, "n p"]:
    """Recipes of the largest centred square of every image."""
    recipes = neutral_recipes(len(images), side_px)
    for recipe, image in zip(recipes, images, strict=True):
        height, width = image.shape[:2]
        side = min(height, width)
        recipe[column("top")] = (height - side) / 2 / height
        recipe[column("left")] = (width - side) / 2 / width
        recipe[column("height")], recipe[column("width")] = side / height, side / width
    return recipes


def check_recipes(recipes: np.ndarray, where: str = "recipes") -> Float32[np.ndarray, "... p"]:
    """The same array, after every number was found in its range.

    Raises `DataError` that names the field, the row and the value of the first number that is not.
    """
    if recipes.dtype != np.float32 or recipes.ndim < 1 or recipes.shape[-1] != NUM_FIELDS:
        raise DataError(
            f"{where}: an array of {recipes.dtype} {list(recipes.shape)}, needed float32 [..., {NUM_FIELDS}]; "
            "score the pairs again with this version of viewkit"
        )
    rows = recipes.reshape(-1, NUM_FIELDS)
    if (other := np.flatnonzero(rows[:, 0] != VERSION)).size:
        raise DataError(
            f"{where}: row {other[0]} has recipe version {rows[other[0], 0]:g}; this viewkit reads version {VERSION}"
        )
    low = np.array([field.low for field in TABLE], dtype=np.float32)
    high = np.array([field.high for field in TABLE], dtype=np.float32)
    whole = np.array([field.whole for field in TABLE])
    right = (rows >= low) & (rows <= high) & (~whole | (rows == np.floor(rows)))  # n p; NaN is not right
    right[:, column("height")] &= rows[:, column("height")] > 0
    right[:, column("width")] &= rows[:, column("width")] > 0
    if (wrong := np.argwhere(~right)).size:
        row, index = wrong[0]
        field = TABLE[index]
        kind = "a whole number in" if field.whole else "a number in"
        above = " and above 0" if field.name in ("height", "width") else ""
        raise DataError(
            f"{where}: row {row}: {field.name} is {rows[row, index]:g}; "
            f"needed {kind} [{field.low:g}, {field.high:g}]{above}"
        )
    for start, extent in (("top", "height"), ("left", "width")):
        end = rows[:, column(start)].astype(np.float64) + rows[:, column(extent)]
        if (outside := np.flatnonzero(end > 1 + EDGE)).size:
            row = outside[0]
            raise DataError(
                f"{where}: row {row}: the box leaves the image: {start} {rows[row, column(start)]:g} + "
                f"{extent} {rows[row, column(extent)]:g} = {end[row]:g}; needed at most 1"
            )
    return recipes


def pixel_boxes(recipes: Float32[np.ndarray, "m p"], sizes: Int[np.ndarray, "m 2"]) -> Int[np.ndarray, "m 4"]:
    """Boxes (top, left, height, width) in whole pixels of images of `sizes` (height, width).

    The rounding rule: extents go to the nearest pixel (halves up), at least 1; then corners go to the nearest pixel
    and are moved back inside where the box would leave the image.
    """
    box = recipes[:, BOX].astype(np.float64)
    scaled = np.floor(box * np.concatenate([sizes, sizes], axis=1) + 0.5).astype(np.int64)
    extent = np.clip(scaled[:, 2:], 1, sizes)
    corner = np.clip(scaled[:, :2], 0, sizes - extent)
    return np.concatenate([corner, extent], axis=1)
