"""Accuracies of class scores: top-1, top-5 and the mean over classes; their spread over repetitions; predictions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from viewkit.pipelines.models.predictions import PREDICTED


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


NO_PREDICTION = -1
"""Prediction of a row of which no class can be the answer."""


def predict(scores: Float[np.ndarray, "n c"]) -> Int[np.ndarray, " n"]:
    """The class that `measure_accuracy` takes for the answer: the highest score, of equal ones the first."""
    return np.where(scores.max(axis=1) > -np.inf, scores.argmax(axis=1), NO_PREDICTION)


def measured_and_predicted(scores: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"]) -> dict[str, Any]:
    """`measure_accuracy`, and the predictions under `PREDICTED`."""
    return {**measure_accuracy(scores, labels), PREDICTED: [predict(scores).tolist()]}


def over_seeds(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over repetitions under their names, and their standard deviations (of n - 1) under ``NAME_std``.

    A deviation is None with one repetition, as is whatever was None before. ``seeds``: the number of repetitions. The
    predictions of all stand one after the other.
    """
    numbers: dict[str, Any] = {"seeds": len(measured)}
    for name in measured[0]:
        if name == PREDICTED:
            numbers[PREDICTED] = [each for one in measured for each in one[PREDICTED]]
            continue
        values = [value for each in measured if (value := each[name]) is not None]
        numbers[name] = float(np.mean(values)) if values else None
        numbers[f"{name}_std"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return numbers
