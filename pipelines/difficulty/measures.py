"""Of pairs: the Statistical Difficulty Factor and the distance (Zhang et al. 2025, eq. 2, appendix E)."""

from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int

from viewkit.pipelines.views.boxes import overlap


def cosine_of_pairs(features: Float[Any, "n 2 d"]) -> Float64[np.ndarray, " n"]:
    """Cosine of the features of a pair's two views; 0 where one of them is zero."""
    first, second = np.asarray(features, dtype=np.float64).swapaxes(0, 1)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / np.where(norms == 0, 1, norms))


def corner_distance(boxes: Float64[np.ndarray, "n 2 4"], sizes: Int[np.ndarray, "n 2"]) -> Float64[np.ndarray, " n"]:
    """Euclidean distance of the upper left corners, in px of images of `sizes` (height, width) (appendix E).

    boxes: (top, left, height, width) in fractions.
    """
    return np.asarray(np.linalg.norm((boxes[:, 0, :2] - boxes[:, 1, :2]) * sizes, axis=1))


def area_ratio(boxes: Float64[np.ndarray, "n 2 4"]) -> Float64[np.ndarray, " n"]:
    """The larger crop's area over the smaller one's."""
    areas = boxes[:, :, 2] * boxes[:, :, 3]
    return np.asarray(areas.max(axis=1) / areas.min(axis=1))


def summarise_pairs(
    cosine: Float64[np.ndarray, " n"], boxes: Float64[np.ndarray, "n 2 4"], sizes: Int[np.ndarray, "n 2"]
) -> dict[str, float | int]:
    """``sdf``: mean cosine of positive pairs (eq. 2), lower is harder; ``sdf_error``: its standard error.

    ``distance``: mean distance of corners in units of the image's sides; ``distance_px``: in px; ``ratio_over_2``:
    share of pairs of which one crop has more than twice the area of the other; ``log_ratio``: mean of the log of that
    ratio; ``overlap``: mean intersection over union.
    """
    ratio = area_ratio(boxes)
    return {
        "pairs": len(cosine),
        "sdf": float(cosine.mean()),
        "sdf_error": float(cosine.std(ddof=1) / np.sqrt(len(cosine))) if len(cosine) > 1 else 0.0,
        "distance": float(corner_distance(boxes, np.ones_like(sizes)).mean()),
        "distance_px": float(corner_distance(boxes, sizes).mean()),
        "ratio_over_2": float((ratio > 2).mean()),
        "log_ratio": float(np.log(ratio).mean()),
        "overlap": float(overlap(boxes[:, 0], boxes[:, 1]).mean()),
    }
