"""Fréchet distance between two sets of features, as if both were normal (Heusel et al. 2017)."""

import numpy as np
from jaxtyping import Float64


def frechet_distance(a: Float64[np.ndarray, "n d"], b: Float64[np.ndarray, "m d"]) -> float:
    """|mean a - mean b|^2 + tr(A + B - 2 (A B)^(1/2)), with covariances that divide by n - 1; at least 0.

    With A = Ra^T Ra and B = Rb^T Rb the trace of the root is the sum of the singular values of Ra Rb^T, which is real
    and exact also where there are fewer rows than features. Few rows make the distance larger: compare it with that of
    as many real images.
    """
    shift = a.mean(axis=0) - b.mean(axis=0)
    first, second = _factor(a), _factor(b)
    cross = np.linalg.svd(first @ second.T, compute_uv=False).sum()
    return max(0.0, float(shift @ shift + (first**2).sum() + (second**2).sum() - 2 * cross))


def _factor(x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "r d"]:
    """R with R^T R the covariance of the rows; r is the smaller of n and d."""
    centred = (x - x.mean(axis=0)) / np.sqrt(len(x) - 1)
    return np.asarray(np.linalg.qr(centred, mode="r"))
