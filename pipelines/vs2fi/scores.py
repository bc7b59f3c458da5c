"""The numbers of a scored pair, and how they follow from similarities without any forward pass."""

import numpy as np
from jaxtyping import Float, Float32

from viewkit.pipelines.vs2fi.alignment import alignment_level, alignment_score
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.consistency import semantic_consistency

ROWS_AT_ONCE = 1 << 16


def rescore(
    similarities: Float[np.ndarray, "*n s"], histograms: Histograms, gamma: float
) -> tuple[Float32[np.ndarray, "*n"], Float32[np.ndarray, "*n"]]:
    """Semantic Consistency in [0, 1] and Alignment Level in {1 ... L + 1} of every pair.

    similarities: the head's cosine, then that of each of the L exits (s = 1 + L), as KEY.scores.npy keeps them from
        `SIMILARITIES` on. float32 out: what the pairs column holds, so scoring and rescoring agree to the bit.
    """
    flat = similarities.reshape(-1, similarities.shape[-1])
    consistency = np.empty(len(flat), dtype=np.float32)
    level = np.empty(len(flat), dtype=np.float32)
    for start in range(0, len(flat), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        part = flat[rows].astype(np.float64)
        consistency[rows] = semantic_consistency(part[:, 0], histograms.consistency_curve)
        p = alignment_score(part[:, 1:], histograms.log_sum, histograms.log_sum_centres, histograms.tau)
        level[rows] = alignment_level(p, gamma)
    shape = similarities.shape[:-1]
    return consistency.reshape(shape), level.reshape(shape)


def score_pairs(
    similarities: Float32[np.ndarray, "*n c k"], histograms: Histograms, gamma: float
) -> Float32[np.ndarray, "*n c s"]:
    """KEY.scores.npy, as `pairs.column.score_names` says: two indicators, then the k = 1 + L similarities."""
    return np.concatenate([np.stack(rescore(similarities, histograms, gamma), -1), similarities], axis=-1)
