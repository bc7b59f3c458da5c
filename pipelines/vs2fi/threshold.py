"""The threshold of Semantic Consistency below which a given share of the pairs lies, read off the histograms."""

import numpy as np
from jaxtyping import Float64

from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.consistency import semantic_consistency
from viewkit.pipelines.vs2fi.histogram import CELLS, bin_edges, centres


def consistency_threshold(histograms: Histograms, share: float) -> tuple[float, float]:
    """k_SC, and the share of the positive pairs that lies below it: of all thresholds the one nearest to `share`.

    The positive pairs of the histograms are candidate pairs: two views of one image, sampled alike. Where many pairs
    have one value (a flat end of the curve) the share cannot be met exactly; of two as near, the lower is taken.
    """
    values, below = shares_below(histograms)
    place = int(np.abs(below - share).argmin())
    return float(values[place]), float(below[place])


def shares_below(histograms: Histograms) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Every Semantic Consistency that positive pairs have, rising, and the share of the pairs that lies below it."""
    filled = np.flatnonzero(histograms.positive_cells)
    middles = centres(bin_edges((0, CELLS), CELLS))[filled]
    found = semantic_consistency(middles, histograms.consistency_curve).astype(np.float32)  # as the column holds it
    values, place = np.unique(found, return_inverse=True)
    counts = np.bincount(place, weights=histograms.positive_cells[filled])
    return values.astype(np.float64), (np.cumsum(counts) - counts) / counts.sum()
