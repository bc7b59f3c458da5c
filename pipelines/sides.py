"""How large the images of a column are."""

from contextlib import suppress

import numpy as np

from viewkit.pipelines.engine.seeds import smallest
from viewkit.shards.codecs import image_field, image_size
from viewkit.shards.column import Column
from viewkit.shards.errors import DataError

SIZED = 64
"""Images whose sizes are read."""


def median_side(images: Column) -> float | None:
    """Median short side in px of the `SIZED` images with the smallest key hashes, from their headers; None where none
    can be read."""
    sizes = []
    for key in smallest(images.keys(), SIZED):
        with suppress(DataError):  # an image that is none is a reject of its own
            sizes.append(min(image_size(image_field(images.fields(images.place_of[key]))[1])))
    return float(np.median(sizes)) if sizes else None
