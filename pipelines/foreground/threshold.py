"""Where foreground begins: an exact order statistic of the sample's scores, and the tokens above it."""

import numpy as np
from jaxtyping import Float64, Int64

from viewkit.shards.errors import DataError


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
