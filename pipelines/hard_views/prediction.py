"""Can the selected pair be predicted from what was sampled, without the network? (Hard View Selection, sec. 5.2.)

The paper's gradient-boosted trees never exceed 40 % on a seed they have not seen, with six pairs: an upper bound of
what a policy by hand could reach.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int

from viewkit.pipelines.hard_views.importance import of_one_image, pair_parameters, share_of_lowest_iou
from viewkit.pipelines.pairs.order import pair_index
from viewkit.shards.errors import DataError

FOLDS = 5
MIN_ROWS = 50
MAX_TREES = 40
"""Rounds of boosting, each with a tree for every pair."""


@dataclass(frozen=True)
class Prediction:
    """Accuracies of predicting the selected pair. parameters: from the sampled parameters of all views; pairs: from
    overlap, distances and areas of all pairs too; lowest_iou: by saying the pair of least overlap; chance: one in c.

    deviation: of `parameters` over the folds; 0 with a log of its own for the test.
    """

    parameters: float
    pairs: float
    deviation: float
    lowest_iou: float
    chance: float
    rows: int

    def lines(self) -> list[str]:
        """The table as text."""
        return [
            f"{self.rows} rows; accuracy of predicting the selected pair (chance {self.chance:.1%}):",
            f"{'sampled parameters':<30} {self.parameters:6.1%} +- {self.deviation:.1%}",
            f"{'and those of pairs':<30} {self.pairs:6.1%}",
            f"{'the pair of least overlap':<30} {self.lowest_iou:6.1%}",
        ]


def predict_selected(
    log: dict[str, np.ndarray], test: dict[str, np.ndarray] | None = None, *, seed: int = 0
) -> Prediction:
    """Fit gradient-boosted trees on a log and measure them on another, e.g. of another seed's run, or by five folds.

    log, test: of `read_view_log`, of pairs; rows with views of two images, of which pairs have no overlap, are left
    out. Raises `DataError` where too few rows were logged.
    """
    from sklearn.model_selection import KFold

    log, test = of_one_image(log), None if test is None else of_one_image(test)
    for each in (log, *(() if test is None else (test,))):
        if "iou" not in each or len(each["iou"]) < MIN_ROWS:
            rows = len(each["iou"]) if "iou" in each else 0
            raise DataError(
                f"{rows} rows of pairs are logged and predicting needs {MIN_ROWS}; train longer with --log-views"
            )
    tested = log if test is None else test
    if test is None:
        folds = list(KFold(FOLDS, shuffle=True, random_state=seed).split(log["iou"]))
        accuracies = [
            [_accuracy(f[fit], chosen_pair(log)[fit], f[held], chosen_pair(log)[held], seed) for fit, held in folds]
            for f in (view_features(log), all_features(log))
        ]
    else:
        accuracies = [
            [_accuracy(features(log), chosen_pair(log), features(test), chosen_pair(test), seed)]
            for features in (view_features, all_features)
        ]
    return Prediction(
        parameters=float(np.mean(accuracies[0])),
        pairs=float(np.mean(accuracies[1])),
        deviation=float(np.std(accuracies[0])),
        lowest_iou=share_of_lowest_iou(tested),
        chance=1 / tested["iou"].shape[1],
        rows=len(tested["iou"]),
    )


def chosen_pair(log: dict[str, np.ndarray]) -> Int[np.ndarray, " n"]:
    """The number, in `pair_index`, of every row's selected pair."""
    pairs = pair_index(log["recipes"].shape[1])
    return (log["views"][:, None] == pairs).all(axis=2).argmax(axis=1)


def view_features(log: dict[str, np.ndarray]) -> Float64[np.ndarray, "n f"]:
    """Everything that was sampled for the views of a row, and the sizes of their images; no loss, no choice."""
    rows = len(log["recipes"])
    return np.concatenate([log["recipes"].reshape(rows, -1), log["sizes_px"].reshape(rows, -1)], axis=1).astype(float)


def all_features(log: dict[str, np.ndarray]) -> Float64[np.ndarray, "n f"]:
    """`view_features` and the parameters of all pairs."""
    pairs = pair_parameters(log["recipes"], log["sizes_px"], log["iou"])
    return np.concatenate([view_features(log), *pairs.values()], axis=1)


def _accuracy(fit: np.ndarray, chosen: np.ndarray, held: np.ndarray, expected: np.ndarray, seed: int) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=MAX_TREES, early_stopping=False, random_state=seed)
    return float((model.fit(fit, chosen).predict(held) == expected).mean())
