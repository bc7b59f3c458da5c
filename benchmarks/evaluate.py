"""The probes of `viewkit evaluate` against scikit-learn's on the same features."""

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from harness import Fact, Row, compare, main, sized
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.linear import STRENGTHS, fit_linear_probe
from viewkit.pipelines.training.neighbours import vote

TRAIN, TEST, WIDTH, CLASSES, NEIGHBOURS, TAU = 20_000, 4_000, 384, 10, 20, 0.07


def clusters(rows: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features around a centre a class, near enough that probes err."""
    centres = np.random.default_rng(0).normal(0, 1, (CLASSES, WIDTH))
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(rows) % CLASSES)
    return (centres[labels] + rng.normal(0, 4, (rows, WIDTH))).astype(np.float32), labels


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    train, labels = clusters(sized(TRAIN, 400), 1)
    test, _ = clusters(sized(TEST, 100), 2)
    held = np.random.default_rng(3).random(len(train)) < 0.2
    iterations = EvaluateConfig().max_iterations
    rows, queries, classes = (torch.from_numpy(each) for each in (train, test, labels))

    def neighbours() -> NDArray[np.int64]:
        scores = vote(rows, classes, queries, neighbours=(NEIGHBOURS,), tau=TAU, num_classes=CLASSES)[NEIGHBOURS]
        return np.asarray(scores.argmax(dim=1).numpy())

    def their_neighbours() -> NDArray[np.int64]:
        def weights(distances: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.exp((1 - distances) / TAU)

        found = KNeighborsClassifier(NEIGHBOURS, weights=weights, algorithm="brute", metric="cosine")
        return np.asarray(found.fit(train, labels).predict(test))

    def their_linear() -> NDArray[np.int64]:
        """The same strengths on the same split, each fit from zero."""
        scaler = StandardScaler().fit(train[~held])
        fitted_on, seen = scaler.transform(train[~held]), scaler.transform(train[held])
        found = []
        for strength in STRENGTHS:
            probe = LogisticRegression(C=strength, max_iter=iterations).fit(fitted_on, labels[~held])
            found.append(float((probe.predict(seen) == labels[held]).mean()))
        scaler = StandardScaler().fit(train)
        last = LogisticRegression(C=STRENGTHS[int(np.argmax(found))], max_iter=iterations)
        return np.asarray(last.fit(scaler.transform(train), labels).predict(scaler.transform(test)))

    def linear() -> NDArray[np.int64]:
        return fit_linear_probe(train, labels, test, held=held, max_iterations=iterations).scores.argmax(axis=1)

    assert (neighbours() == their_neighbours()).mean() > 0.99  # rounding decides between nearly equal votes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        measured = [
            compare("kNN, 20 neighbours / scikit-learn (time)", neighbours, their_neighbours, rounds, at_most=True),
            compare("linear probe / scikit-learn (time)", linear, their_linear, rounds, at_most=True),
        ]
    return measured, []


if __name__ == "__main__":
    main("evaluate", run)
