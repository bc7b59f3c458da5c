"""Histograms as integer counts (docs/method.md, V2 and V3): exact to merge, the same bits for any order or sharding.

Values are counted on a fixed fine grid of `CELLS` equal cells over [-1, 1]; nothing has to be known beforehand, and
counts of two parts are added as integers. The few bins of a histogram are laid over the cells afterwards, by
`bin_cells`, so that every bin is a union of whole cells and the binned counts are exact on the edges they state.
"""

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from viewkit.shards.errors import DataError

CELLS = 2**14
"""Cells of the fine grid; each is 2/CELLS = 1.2e-4 wide, and holds its lower edge."""


def count_cells(values: Float[Tensor, "..."]) -> Int64[Tensor, " cells"]:
    """How many values lie in each fine cell of [-1, 1]; values outside (fp32 rounds a cosine to 1.0000001) are clamped.

    Raises DataError for NaN: a NaN has no cell, and leaving it out would hide a broken estimator.
    """
    if bool(torch.isnan(values).any()):
        raise DataError("histograms: a similarity is NaN; the estimator is broken, train it again")
    cell = (values.double().flatten() * (CELLS / 2)).floor().long() + CELLS // 2  # exact: scaled by a power of two
    return torch.bincount(cell.clamp(0, CELLS - 1), minlength=CELLS)


def pooled_range(counts: Int64[np.ndarray, "k cells"], bins: int) -> tuple[int, int]:
    """First cell and last cell + 1 of the range that all k histograms share.

    It runs from the lowest to the highest cell that any of them fills, widened upwards to a multiple of `bins` cells
    (downwards where the grid ends), so that all bins hold the same whole number of cells.
    Raises DataError when all are empty.
    """
    filled = np.flatnonzero(counts.any(axis=0))
    if filled.size == 0:
        raise DataError("histograms: no pair was counted; the dataset has too few images")
    num_cells = counts.shape[1]
    start, stop = int(filled[0]), int(filled[-1]) + 1
    width = -(-(stop - start) // bins) * bins
    if width > num_cells:  # num_cells is no multiple of bins: the last bin reaches past the grid, over no values
        return 0, width
    start = min(start, num_cells - width)
    return start, start + width


def bin_cells(counts: Int64[np.ndarray, "k cells"], span: tuple[int, int], bins: int) -> Int64[np.ndarray, "k b"]:
    """Counts of `bins` equal bins over the cells start ... stop - 1; (stop - start) is a multiple of bins."""
    start, stop = span
    inside = counts[:, start : min(stop, counts.shape[1])]
    padded = np.zeros((len(counts), stop - start), dtype=np.int64)
    padded[:, : inside.shape[1]] = inside
    return padded.reshape(len(counts), bins, -1).sum(axis=2)


def bin_edges(span: tuple[int, int], bins: int) -> Float64[np.ndarray, " edges"]:
    """Edges of the bins in [-1, 1], float64: exact, because a cell's width is a power of two."""
    start, stop = span
    step = (stop - start) // bins
    return (start + step * np.arange(bins + 1)) * (2 / CELLS) - 1


def centres(edges: Float64[np.ndarray, "*k edges"]) -> Float64[np.ndarray, "*k edges-1"]:
    """Middles of the bins."""
    return (edges[..., :-1] + edges[..., 1:]) / 2


def separation(positive: Int64[np.ndarray, " cells"], negative: Int64[np.ndarray, " cells"]) -> float:
    """P(a positive pair is more alike than a negative one), ties half: the area under the ROC curve. 0.5 = blind."""
    below = np.concatenate([[0], np.cumsum(negative)[:-1]]) + negative / 2
    return float((positive / positive.sum() * (below / negative.sum())).sum())
