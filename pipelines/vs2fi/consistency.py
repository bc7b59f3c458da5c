"""Semantic Consistency: do two views come from one image, given their similarity? (docs/method.md, V4 to V6)."""

from typing import Literal

import numpy as np
from jaxtyping import Float, Float64, Int64

from viewkit.pipelines.vs2fi.histogram import centres

Curve = Literal["bins", "isotonic"]
"""bins: the bins' own posteriors, as in the paper. isotonic: the nearest curve that never falls as similarity rises."""


def posterior(
    positive: Int64[np.ndarray, " b"], negative: Int64[np.ndarray, " b"], prior_positive: float = 0.5
) -> Float64[np.ndarray, " b"]:
    """p(pos | S) of every bin by VS-2FI eq. 2; the densities are the shares of all positive or negative pairs.

    A bin that no pair of either kind fell into gives NaN: nothing is known there. One without negatives gives 1.
    """
    h_pos = positive / positive.sum() * prior_positive
    h_neg = negative / negative.sum() * (1 - prior_positive)
    known = (h_pos + h_neg) > 0
    return np.where(known, h_pos / np.where(known, h_pos + h_neg, 1), np.nan)


def consistency_curve(
    positive: Int64[np.ndarray, " b"],
    negative: Int64[np.ndarray, " b"],
    edges: Float64[np.ndarray, " b+1"],
    prior_positive: float = 0.5,
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """The knots (similarity, p(pos | S)) that `semantic_consistency` joins by straight lines: centres of known bins.

    An empty bin is no knot, so the line runs between its neighbours.
    """
    p = posterior(positive, negative, prior_positive)
    known = ~np.isnan(p)
    return centres(edges)[known], p[known]


def isotonic_curve(
    positive: Int64[np.ndarray, " b"],
    negative: Int64[np.ndarray, " b"],
    edges: Float64[np.ndarray, " b+1"],
    prior_positive: float = 0.5,
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """As `consistency_curve`, with the knots' weighted isotonic regression in place of their own values.

    p(pos | S) rises with S for a converged estimator (VS-2FI, prop. 3.1), but in bins of few counts it need not. With
    the bins' densities as weights, bins that are pooled get the posterior of their joint counts.
    """
    from sklearn.isotonic import IsotonicRegression

    s, p = consistency_curve(positive, negative, edges, prior_positive)
    density = positive / positive.sum() * prior_positive + negative / negative.sum() * (1 - prior_positive)
    fit = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=True)
    return s, fit.fit_transform(s, p, sample_weight=density[density > 0])


def semantic_consistency(
    similarity: Float[np.ndarray, "*n"], curve: tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]
) -> Float64[np.ndarray, "*n"]:
    """p(pos | S) in [0, 1]: linear between the curve's knots, constant beyond the first and the last."""
    return np.interp(similarity, *curve)
