"""Functional analysis of variance of a random forest: how much of its variance each parameter explains alone.

Hutter, Hoos & Leyton-Brown 2014, sec. 3: a tree is constant on boxes, so its average over all parameters but one, and
the variance of that average, are sums over its leaves. Hard View Selection (appendix D) reports these shares.
"""

from typing import Any

import numpy as np
from jaxtyping import Float64


def fanova(forest: Any, low: Float64[np.ndarray, " f"], high: Float64[np.ndarray, " f"]) -> Float64[np.ndarray, " f"]:
    """Share of the variance that every parameter explains by itself, the mean over the forest's trees.

    Parameters are independent and uniform between `low` and `high`, as there; the shares add up to 1 where nothing
    interacts, else to less. forest: a fitted regression forest of scikit-learn. Trees without any variance count for
    nothing; NaN where there are no others.
    """
    shares = [found for tree in forest.estimators_ if (found := shares_of_tree(tree.tree_, low, high)) is not None]
    return np.mean(shares, axis=0) if shares else np.full(len(low), np.nan)


def shares_of_tree(
    tree: Any, low: Float64[np.ndarray, " f"], high: Float64[np.ndarray, " f"]
) -> Float64[np.ndarray, " f"] | None:
    """Variance of every parameter's marginal over the variance of the tree; None where that is 0."""
    bottom, top, values = leaf_boxes(tree, low, high)  # l f, l f, l
    span = high - low
    widths = np.where(span > 0, (top - bottom) / np.where(span > 0, span, 1), 1.0)  # shares of each range
    volumes = widths.prod(axis=1)
    mean = float(volumes @ values)
    total = float(volumes @ values**2) - mean**2
    if total <= 1e-12 * max(1.0, mean**2):
        return None
    shares = np.zeros(len(low))
    for j in np.flatnonzero(span > 0):
        inside = widths[:, j] > 0  # a leaf beyond the range has no place in it
        edges = np.unique(np.concatenate([bottom[inside, j], top[inside, j]]))
        steps = np.zeros(len(edges))
        weights = values[inside] * volumes[inside] / widths[inside, j]
        np.add.at(steps, np.searchsorted(edges, bottom[inside, j]), weights)
        np.add.at(steps, np.searchsorted(edges, top[inside, j]), -weights)
        marginal = steps.cumsum()[:-1]  # the mean over all other parameters, between two edges
        shares[j] = ((marginal - mean) ** 2 @ np.diff(edges)) / span[j] / total
    return shares


def leaf_boxes(
    tree: Any, low: Float64[np.ndarray, " f"], high: Float64[np.ndarray, " f"]
) -> tuple[Float64[np.ndarray, "l f"], Float64[np.ndarray, "l f"], Float64[np.ndarray, " l"]]:
    """Lower and upper corners of every leaf's box, and what the tree says there."""
    corners: list[tuple[np.ndarray, np.ndarray]] = []
    values: list[float] = []
    waiting = [(0, low.astype(np.float64), high.astype(np.float64))]
    while waiting:
        node, bottom, top = waiting.pop()
        left, right = int(tree.children_left[node]), int(tree.children_right[node])
        if left == right:
            corners.append((bottom, top))
            values.append(float(tree.value[node].ravel()[0]))
            continue
        j = int(tree.feature[node])
        threshold = float(np.clip(tree.threshold[node], low[j], high[j]))
        below, above = top.copy(), bottom.copy()
        below[j], above[j] = min(top[j], threshold), max(bottom[j], threshold)
        waiting += [(left, bottom, below), (right, above, top)]
    return np.stack([each[0] for each in corners]), np.stack([each[1] for each in corners]), np.array(values)
