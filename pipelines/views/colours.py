"""The low-level distance of two views: Hellinger distance of their colour histograms (VS-2FI, eq. 22)."""

import numpy as np
from jaxtyping import Float, Float64

BINS = 30
"""Bins of each channel (VS-2FI, appendix E.1)."""
RANGES = ((0.0, 100.0), (-128.0, 128.0), (-128.0, 128.0))
"""Of L*, a* and b*, as 8-bit L*a*b* images have them. The bins are fixed, so histograms of any two views compare."""


def lab_histograms(views: Float[np.ndarray, "m s s 3"]) -> Float64[np.ndarray, "m k"]:
    """Counts of L*, a* and b* (D65), one after the other: k = 3 * BINS numbers a view.

    views: RGB, 0-1. The paper does not say whether its histogram is joint or one a channel; 30 bins a channel are
    taken one after the other here, since a joint one has 27,000 bins for the few pixels of a small view.
    """
    from skimage.color import rgb2lab

    m = len(views)
    lab = rgb2lab(views.astype(np.float64)).reshape(m, -1, 3)
    low, high = (np.array(ends) for ends in zip(*RANGES, strict=True))
    cell = np.clip(((lab - low) * (BINS / (high - low))).astype(np.int64), 0, BINS - 1)  # m px 3
    cell += np.arange(3) * BINS + np.arange(m)[:, None, None] * (3 * BINS)
    return np.bincount(cell.ravel(), minlength=m * 3 * BINS).reshape(m, 3 * BINS).astype(np.float64)


def hellinger(a: Float[np.ndarray, "*n k"], b: Float[np.ndarray, "*n k"]) -> Float64[np.ndarray, "*n"]:
    """Distance in [0, 1] of histograms or probabilities, 0 for proportional ones (VS-2FI, eq. 22).

    sqrt(mean_a mean_b N^2) of the equation is the root of the product of both sums. Rounding can take the square
    below 0, which is cut off. A histogram of zeros gives NaN.
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        alike = np.sqrt(a * b).sum(axis=-1) / np.sqrt(a.sum(axis=-1) * b.sum(axis=-1))
    return np.asarray(np.sqrt(np.maximum(1 - alike, 0)))
