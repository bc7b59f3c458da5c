"""Are generated views copies? By their distance to the nearest known image, calibrated on real images."""

import numpy as np
from jaxtyping import Float, Float64, Int64

REAL_SHARE = 0.05
"""Share of real images that are nearer to another one than the threshold: what a share of copies is compared with."""
BLOCK = 256
"""Queries at a time."""


def nearest_distance(
    queries: Float[np.ndarray, "v n d"], known: Float[np.ndarray, "m d"], own: Int64[np.ndarray, " n"]
) -> Float64[np.ndarray, " n"]:
    """Distance of each row to the nearest known image, between features at unit length: 0 ... 2.

    queries: v ways of looking at a row, as it is and mirrored; the nearest counts. own: place of the row's own image
    among the known ones, which is left out; -1 where it is none of them.
    """
    directions = _unit(known)
    best = np.full(queries.shape[1], -1.0)
    for way in queries:
        for start in range(0, len(way), BLOCK):
            part = slice(start, start + BLOCK)
            cosine = _unit(way[part]) @ directions.T
            rows = np.flatnonzero(own[part] >= 0)
            cosine[rows, own[part][rows]] = -1.0
            best[part] = np.maximum(best[part], cosine.max(axis=1))
    return np.sqrt(np.maximum(0.0, 2 - 2 * best))


def copy_threshold(real: Float64[np.ndarray, " n"]) -> float:
    """The distance below which `REAL_SHARE` of the real images have their nearest other image."""
    return float(np.quantile(real, REAL_SHARE))


def copied_share(views: Float64[np.ndarray, " n"], threshold: float) -> float:
    """Share of the views whose nearest known image is nearer than that."""
    return float((views < threshold).mean())


def _unit(x: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    found: np.ndarray = x.astype(np.float64) / np.where(norm > 0, norm, 1)
    return found
