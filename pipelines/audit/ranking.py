"""How well a score finds the pairs of a known kind: area under the ROC curve, precision and recall. Ties are fair."""

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64
from scipy.stats import rankdata


def roc_area(score: Float[np.ndarray, " m"], truth: Bool[np.ndarray, " m"]) -> float | None:
    """P(a true one scores higher than a false one), ties half (Mann-Whitney); None when there is only one kind."""
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if positives == 0 or negatives == 0:
        return None
    ranks = rankdata(score)  # from 1, of equals the mean
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def roc_error(
    score: Float[np.ndarray, " m"], truth: Bool[np.ndarray, " m"], group: Int64[np.ndarray, " m"]
) -> float | None:
    """Standard error of `roc_area` by a jackknife that leaves out one group at a time; None where it cannot be said.

    Pairs of one image resemble each other, so groups are of whole images; counting pairs as independent would give
    an error several times too small.
    """
    groups = np.unique(group)
    areas = [roc_area(score[group != left_out], truth[group != left_out]) for left_out in groups]
    return jackknife_error(np.array([np.nan if area is None else area for area in areas]))


def jackknife_error(left_out: Float64[np.ndarray, " g"]) -> float | None:
    """Standard error of a number from its values without each of g groups in turn; None where one is not known."""
    if len(left_out) < 2 or np.isnan(left_out).any():
        return None
    return float(np.sqrt((len(left_out) - 1) * left_out.var()))


def roc_curve(
    score: Float[np.ndarray, " m"], truth: Bool[np.ndarray, " m"]
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """(share of the false, share of the true) that score at least as high as each value; begins at (0, 0)."""
    values, place = np.unique(-score, return_inverse=True)
    hits = np.bincount(place, weights=truth, minlength=len(values)).cumsum()
    alarms = np.bincount(place, weights=~truth, minlength=len(values)).cumsum()
    return np.concatenate([[0], alarms / alarms[-1]]), np.concatenate([[0], hits / hits[-1]])


def flag_highest(
    score: Float[np.ndarray, " m"], truth: Bool[np.ndarray, " m"], count: int
) -> tuple[float | None, float | None]:
    """Precision and recall of flagging the `count` with the highest score.

    Where equals straddle the limit, the expectation over a random choice among them. Precision is None when nothing
    is flagged, recall when nothing is true.
    """
    values, place, size = np.unique(-score, return_inverse=True, return_counts=True)
    hits = np.bincount(place, weights=truth, minlength=len(values))
    taken = np.clip(count - (np.cumsum(size) - size), 0, size)  # of each group of equals, highest score first
    found = float((hits * taken / size).sum())
    positives = int(truth.sum())
    return (found / count if count else None), (found / positives if positives else None)
