"""Accuracies of class scores: top-1, top-5 and the mean over classes; and their spread over repetitions."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int


def measure_accuracy(scores: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"]) -> dict[str, float | None]:
    """Shares of rows in [0, 1]: ``top1``, ``top5`` and ``mean_per_class`` (mean over classes of their top-1).

    scores: higher is likelier, -inf for a class that cannot be the answer (it never counts as found). Equal scores
        rank by class number, so that the result depends on nothing else.
    labels: right class of each row, 0 ... c - 1. Classes without a row do not enter the mean.
    ``top5`` is None with five classes or fewer, where it would always be 1.
    """
    own = np.take_along_axis(scores, labels[:, None], axis=1)  # n 1
    earlier = np.arange(scores.shape[1])[None, :] < labels[:, None]
    rank = (scores > own).sum(axis=1) + ((scores == own) & earlier).sum(axis=1)
    possible = own[:, 0] > -np.inf
    first = (rank == 0) & possible
    per_class = [float(first[labels == label].mean()) for label in np.unique(labels)]
    return {
        "top1": float(first.mean()),
        "top5": float(((rank < 5) & possible).mean()) if scores.shape[1] > 5 else None,
        "mean_per_class": float(np.mean(per_class)),
    }


def over_seeds(measured: Sequence[dict[str, float | None]]) -> dict[str, float | int | None]:
    """Means over repetitions under their names, and their standard deviations (of n - 1) under ``NAME_std``.

    A deviation is None with one repetition, as is whatever was None before. ``seeds``: the number of repetitions.
    """
    numbers: dict[str, float | int | None] = {"seeds": len(measured)}
    for name in measured[0]:
        values = [value for each in measured if (value := each[name]) is not None]
        numbers[name] = float(np.mean(values)) if values else None
        numbers[f"{name}_std"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return numbers
