"""The linear probe: logistic regression on standardised features, its strength chosen on a split of train."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Candidates for C. It weighs the sum of the images' losses against the L2 penalty: more images, smaller best C."""


@dataclass(frozen=True)
class LinearProbe:
    """scores: log-odds of each class on the test rows. strength: the C chosen. converged: of the last fit.

    classifier: what gave the scores, for other rows.
    """

    scores: Float[np.ndarray, "n c"]
    strength: float
    split_accuracy: float | None
    converged: bool
    classifier: "Classifier"


@dataclass(frozen=True)
class Classifier:
    """A linear map of standardised features; mean, scale [d], weight [c d], bias [c]."""

    mean: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    weight: Float[np.ndarray, "c d"]
    bias: Float[np.ndarray, " c"]

    def scores(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n c"]:
        """Log-odds of each class, in double precision."""
        return ((x.astype(np.float64) - self.mean) / self.scale) @ self.weight.T + self.bias


def fit_linear_probe(
    train: Float[np.ndarray, "m d"],
    train_labels: Int[np.ndarray, " m"],
    test: Float[np.ndarray, "n d"],
    *,
    held: Bool[np.ndarray, " m"],
    max_iterations: int,
) -> LinearProbe:
    """Fit on the rows of `train` that are not `held` for every C, take the best on `held`, fit again on all of train.

    Features are standardised by the mean and standard deviation of the rows fitted on. Of equally good strengths the
    smallest C is taken. Where `held` is empty (one row a class) C is 1. Every fit starts from that of the next
    smaller C, so the few iterations of each add up. Labels: 0 ... c - 1, each at least once.
    """
    chosen, best = 1.0, None
    if held.any():
        fits = fit_path(train[~held], train_labels[~held], train[held], STRENGTHS, max_iterations)
        accuracies = [float((scores.argmax(axis=1) == train_labels[held]).mean()) for scores, *_ in fits]
        best = max(accuracies)
        chosen = STRENGTHS[accuracies.index(best)]
    path = [strength for strength in STRENGTHS if strength <= chosen]
    scores, converged, classifier = fit_path(train, train_labels, test, path, max_iterations)[-1]
    return LinearProbe(scores, chosen, best, converged, classifier)


def fit_path(
    train: Float[np.ndarray, "m d"],
    labels: Int[np.ndarray, " m"],
    test: Float[np.ndarray, "n d"],
    strengths: Sequence[float],
    max_iterations: int,
) -> list[tuple[Float[np.ndarray, "n c"], bool, Classifier]]:
    """One logistic regression by L-BFGS for every C, each started from the one before.

    Returns the log-odds of the test rows, whether it converged, and the classifier itself, for each.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    probe = LogisticRegression(solver="lbfgs", max_iter=max_iterations, warm_start=True)
    fits = []
    for strength in strengths:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # told by `converged`
            probe.set_params(C=strength).fit(train, labels)
        scores = np.asarray(probe.decision_function(test), dtype=np.float64)
        if scores.ndim == 1:  # two classes: scikit-learn gives the second's log-odds alone
            scores = np.stack([-scores, scores], axis=1)
        weight, bias = probe.coef_.astype(np.float64), probe.intercept_.astype(np.float64)
        if len(weight) == 1:
            weight, bias = np.concatenate([-weight, weight]), np.concatenate([-bias, bias])
        classifier = Classifier(scaler.mean_, scaler.scale_, weight, bias)
        fits.append((scores, bool(probe.n_iter_.max() < max_iterations), classifier))
    return fits
