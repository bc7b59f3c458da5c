"""Alignment Level: the first exit that tells a pair from pairs of different images (docs/method.md, V7 to V9)."""

import math

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor


def soft_mean(similarity: Float[Tensor, "n k"], is_negative: Bool[Tensor, "n k"], tau: float) -> Float[Tensor, " n"]:
    """tau log mean exp(S / tau) over each row's negatives; similarity in fp32 or fp64.

    It lies between the row's lowest and highest similarity, hence on the histograms' grid whatever N and tau are;
    log of the sum over N negatives (VS-2FI eq. 6, appendix B) is log N + soft_mean / tau, see `log_sum_edges`.
    """
    logits = (similarity / tau).masked_fill(~is_negative, -math.inf)
    return tau * (logits.logsumexp(1) - is_negative.sum(1).to(similarity.dtype).log())


def log_sum_edges(edges: Float64[np.ndarray, "*k"], negatives: int, tau: float) -> Float64[np.ndarray, "*k"]:
    """From the soft mean's axis in [-1, 1] to log of the sum of exp(S / tau) over N negatives."""
    return math.log(negatives) + edges / tau


def alignment_score(
    similarity: Float[np.ndarray, "n e"],
    log_sum: Int64[np.ndarray, "e b"],
    log_sum_centres: Float64[np.ndarray, "e b"],
    tau: float,
) -> Float64[np.ndarray, "n e"]:
    """The expected alignment score in [0, 1], VS-2FI eq. 6: mean over the bins of Q / (Q + sum), weighted by counts.

    log_sum, log_sum_centres: histogram of log of the sum over the negatives, one row per exit.
    """
    weight = log_sum / log_sum.sum(axis=1, keepdims=True)
    score = np.zeros(similarity.shape)
    for weight_b, centre_b in zip(weight.T, log_sum_centres.T, strict=True):  # one bin at a time: memory of one [n e]
        score += weight_b / (1 + np.exp(centre_b - similarity / tau))
    return score


def alignment_level(score: Float[np.ndarray, "n e"], gamma: float) -> Int64[np.ndarray, " n"]:
    """The first exit (1 ... L) whose score exceeds gamma, L + 1 where none does; VS-2FI eq. 5."""
    passes = score > gamma
    return np.where(passes.any(axis=1), passes.argmax(axis=1), score.shape[1]) + 1
