"""The side at which generated views are stored."""

import numpy as np

from viewkit.pipelines.sides import median_side
from viewkit.shards.column import Column

SMALLEST_PX, LARGEST_PX = 32, 512


def natural_px(images: Column) -> int:
    """Side of stored views where nothing else is said: the images' short side as the next power of two, 32 ... 512.

    CIFAR's 32 px, Tiny-ImageNet's 64 and ImageNet's 512 are those of GenView's appendix A.
    """
    median = median_side(images)
    side = LARGEST_PX if median is None else 2 ** np.ceil(np.log2(median))
    return int(min(LARGEST_PX, max(SMALLEST_PX, side)))
