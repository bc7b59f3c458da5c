"""How large the images of a column are."""

from contextlib import suppress

import numpy as np

from viewkit.pipelines.engine.seeds import smallest
from viewkit.shards.codecs import image_field, image_size
from viewkit.shards.column import Column
from viewkit.shards.errors import DataError

SMALLEST_PX, LARGEST_PX = 32, 512
SIZED = 64
"""Images whose sizes are looked at."""


def median_side(images: Column) -> float | None:
    """Median short side of the `SIZED` images with the smallest key hashes, from their headers; None where none can be
    read."""
    sizes = []
    for key in smallest(images.keys(), SIZED):
        with suppress(DataError):  # an image that is none is a reject of its own
            sizes.append(min(image_size(image_field(images.fields(images.place_of[key]))[1])))
    return float(np.median(sizes)) if sizes else None


def natural_px(images: Column) -> int:
    """Side of stored views where nothing else is said: the images' short side as the next power of two, 32 ... 512.

    CIFAR's 32 px, Tiny-ImageNet's 64 and ImageNet's 512 are those of GenView's appendix A.
    """
    median = median_side(images)
    side = LARGEST_PX if median is None else 2 ** np.ceil(np.log2(median))
    return int(min(LARGEST_PX, max(SMALLEST_PX, side)))
