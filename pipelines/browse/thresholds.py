"""What the page needs to read the indicators off similarities again, and to find thresholds: plain arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from viewkit.pipelines.pairs.options import FILTER_SHARE
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.threshold import shares_below


@dataclass(frozen=True, eq=False)
class Reading:
    """tau, weights [e b], centres [e b]: of the alignment score (eq. 6). values, below: every Semantic Consistency that
    the histograms' positive pairs have, rising, and the share of them below it."""

    tau: float
    weights: Float64[np.ndarray, "e b"]
    centres: Float64[np.ndarray, "e b"]
    values: Float64[np.ndarray, " k"]
    below: Float64[np.ndarray, " k"]
    share: float = FILTER_SHARE

    def facts(self) -> dict[str, Any]:
        return {"tau": self.tau, "share": self.share, "bins": self.weights.shape[1]}


def reading_of(histograms: Histograms) -> Reading:
    counts = histograms.log_sum
    values, below = shares_below(histograms)
    return Reading(
        tau=histograms.tau,
        weights=counts / counts.sum(axis=1, keepdims=True),
        centres=histograms.log_sum_centres,
        values=values,
        below=below,
    )
