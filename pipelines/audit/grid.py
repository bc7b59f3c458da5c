"""The 4 x 4 grid of ranges of both indicators, and what is averaged in its cells (VS-2FI, figure 6)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64
from scipy.stats import rankdata

CONSISTENCY_EDGES = (0.75, 0.9, 0.99)
"""Figure 5 divides Semantic Consistency at 0.75 and 0.9, and the training at 0.99; figure 6 states no other edges."""


@dataclass(frozen=True)
class Ranges:
    """Four ranges of one indicator. edges: a value on an edge belongs to the range above it. labels: lowest first."""

    edges: tuple[float, float, float]
    labels: tuple[str, str, str, str]

    def place(self, values: Float[np.ndarray, "*n"]) -> Int64[np.ndarray, "*n"]:
        """Index 0 ... 3 of every value's range. Edges are rounded to the values' type, as the filters' thresholds."""
        edges = np.array(self.edges).astype(values.dtype)
        return np.searchsorted(edges, values, side="right").astype(np.int64)


def consistency_ranges() -> Ranges:
    a, b, c = CONSISTENCY_EDGES
    return Ranges(CONSISTENCY_EDGES, (f"< {a:g}", f"{a:g} to {b:g}", f"{b:g} to {c:g}", f">= {c:g}"))


def level_ranges(num_exits: int, k_al: float) -> Ranges:
    """Levels 1 ... L + 1 divided at k_al, and both parts halved: for L = 12 and k_al = 7 at 4, 7 and 10."""
    edges = ((1 + k_al) / 2, float(k_al), (k_al + num_exits + 1) / 2)
    levels = np.arange(1, num_exits + 2)
    place = np.searchsorted(edges, levels, side="right")
    found = [levels[place == part] for part in range(4)]
    labels = ["no level" if not len(part) else _span(part) for part in found]
    return Ranges(edges, (labels[0], labels[1], labels[2], labels[3]))


def _span(levels: Int64[np.ndarray, " k"]) -> str:
    return f"{levels[0]}" if len(levels) == 1 else f"{levels[0]} to {levels[-1]}"


def selected_cells(consistency: Ranges, level: Ranges, k_sc: float, k_al: float) -> Bool[np.ndarray, "4 4"]:
    """Cells all of whose pairs pass both thresholds."""
    lowest = [np.array([-np.inf, *ranges.edges]) for ranges in (consistency, level)]
    return np.asarray((lowest[0] >= k_sc)[:, None] & (lowest[1] >= k_al)[None, :])


def cell_counts(row: Int64[np.ndarray, " m"], column: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, "4 4"]:
    """Pairs in every cell."""
    return np.bincount(row * 4 + column, minlength=16).reshape(4, 4).astype(np.int64)


def cell_means(
    values: Float[np.ndarray, " m"], row: Int64[np.ndarray, " m"], column: Int64[np.ndarray, " m"]
) -> Float64[np.ndarray, "4 4"]:
    """Mean of the values of every cell; a NaN value is not known and left out; a cell without any is NaN."""
    known = ~np.isnan(values)
    cell = (row * 4 + column)[known]
    count = np.bincount(cell, minlength=16)
    total = np.bincount(cell, weights=values[known].astype(np.float64), minlength=16)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).reshape(4, 4)


def rank_correlation(a: Float[np.ndarray, " m"], b: Float[np.ndarray, " m"]) -> float | None:
    """Spearman's, ties at their mean rank, over the pairs where both are known; None when one of them is constant."""
    known = ~(np.isnan(a) | np.isnan(b))
    x, y = (rankdata(values[known]) for values in (a, b))
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])
