"""From the scores of an image's tokens to its foreground share, and to the noise level that share allows."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

from viewkit.shards.errors import DataError

LEVEL_STEP = 100
LARGEST_LEVEL = 400
LEVELS = tuple(range(0, LARGEST_LEVEL + 1, LEVEL_STEP))


def fit_threshold(scores: Float64[np.ndarray, " m"], share: float) -> float:
    """The largest score that is not foreground when the `floor(share m)` largest are (fewer where scores tie).

    The release takes the left edge of one of 200 bins between the extremes, so that one outlier moves it.
    """
    if not np.isfinite(scores).all():
        raise DataError("foreground: the encoder gave scores that are not finite; use --precision fp32")
    place = len(scores) - 1 - int(np.floor(share * len(scores)))
    return float(np.partition(scores, place)[place])


def count_foreground(scores: Float64[np.ndarray, "n t"], threshold: float) -> Int64[np.ndarray, " n"]:
    """Foreground tokens of each image."""
    return (scores > threshold).sum(axis=1).astype(np.int64)


def adaptive_level(count: int, total: int, levels: Sequence[int] = LEVELS) -> int:
    """Level of an image with `count` foreground tokens among `total`: number min(4, floor(5 count / total)) of the five
    levels, by default 100 times that (GenView, eq. 4).

    In integers, since floor(0.6 / 0.2) is 2 in floating point. The cap is the paper's text; its formula alone gives 500
    for an image that is all foreground.
    """
    return levels[min(len(levels) - 1, 5 * count // total)]
