"""JointAugmentation: one parameter of two views, sampled through their ratio (Zhang et al. 2025).

A pair of values in [low, high] has log ratio in [-s_b, s_b], s_b = log(high / low). JC(beta) is a distribution of
the log ratio, symmetric about 0; the smaller beta, the further the two views are apart. The same two functions serve
crop areas (JointCrop), blur sigmas (JointBlur), brightness and contrast factors (JointColor).
"""

import numpy as np
from jaxtyping import Float64

from viewkit.pipelines.views.portable import erf, exp, log, normal_quantile

Numbers = Float64[np.ndarray, "*any"]


def log_ratio(u: Numbers, beta: float, s_b: Numbers) -> Numbers:
    """log s_r ~ JC(beta) from u uniform in [0, 1) (Zhang et al. 2025, Alg. 1, lines 1-13).

    A normal distribution of standard deviation s_b / |beta|, truncated at +-s_b; uniform for beta = 0; for beta < 0
    each half is reversed, so the mass moves from 0 to the ends. Sampled by inversion: no rejection, one uniform per
    pair.
    """
    centred = 2 * u - 1  # [-1, 1)
    if beta == 0:
        return s_b * centred
    half_mass = 0.5 * erf(abs(beta) / np.sqrt(2.0))
    z = normal_quantile(half_mass * centred)  # in [-|beta|, |beta|]
    ratio = np.clip(s_b * z / abs(beta), -s_b, s_b)
    if beta > 0:
        return ratio
    return np.where(ratio < 0, -s_b - ratio, s_b - ratio)


def joint_pair(
    u_ratio: Float64[np.ndarray, " m"],
    u_first: Float64[np.ndarray, " m"],
    beta: float,
    low: Float64[np.ndarray, " m"],
    high: Float64[np.ndarray, " m"],
) -> Float64[np.ndarray, "m 2"]:
    """Both values, each in [low, high] with low > 0 (Zhang et al. 2025, Alg. 1, lines 14-15).

    s_b is exact. The released code takes log(high / low - 0.1) because rounding can turn the interval of s_1 around
    at the ends of the distribution; here that interval is clipped instead.
    """
    ratio = exp(log_ratio(u_ratio, beta, log(high / low)))
    bottom = np.clip(np.maximum(low, low / ratio), low, high)
    top = np.clip(np.minimum(high / ratio, high), bottom, high)
    first = bottom + (top - bottom) * u_first
    return np.stack([first, np.clip(first * ratio, low, high)], axis=1)


def ratio_density(x: Numbers, low: float, high: float) -> Numbers:
    """Density of the ratio of two independent uniform values in [low, high] (Zhang et al. 2025, eq. 8)."""
    scale = 2 * (high - low) ** 2
    below = (high**2 - low**2 / x**2) / scale
    above = (high**2 / x**2 - low**2) / scale
    return np.where((x < low / high) | (x > high / low), 0.0, np.where(x <= 1, below, above))


def ratio_cdf(x: Numbers, low: float, high: float) -> Numbers:
    """P(ratio <= x) of two independent uniform values in [low, high] (Zhang et al. 2025, eq. 5, and by symmetry)."""
    x = np.clip(x, low / high, high / low)
    least = np.minimum(x, 1 / x)
    below = (high**2 * least / 2 - high * low + low**2 / (2 * least)) / (high - low) ** 2
    return np.where(x <= 1, below, 1 - below)


def log_ratio_density(y: Numbers, beta: float, s_b: float) -> Numbers:
    """Density of log s_r under JC(beta) at y."""
    inside = np.abs(y) <= s_b
    if beta == 0:
        return np.where(inside, 1 / (2 * s_b), 0.0)
    sigma = s_b / abs(beta)
    at = y if beta > 0 else s_b - np.abs(y)
    mass = erf(abs(beta) / np.sqrt(2.0))
    density = np.exp(-((at / sigma) ** 2) / 2) / (sigma * np.sqrt(2 * np.pi) * mass)
    return np.where(inside, density, 0.0)


def pair_log_density(first: Numbers, second: Numbers, beta: float, low: float, high: float) -> Numbers:
    """log p(s_1, s_2) under `joint_pair`: the distribution of the ratio times the uniform distribution of s_1 given it.

    With y = log(s_2 / s_1): p = p_JC(y) / (s_2 * length(y)), where length is that of s_1's interval given y.
    """
    y = np.log(second / first)
    ratio = np.exp(y)
    length = np.minimum(high, high / ratio) - np.maximum(low, low / ratio)
    inside = (np.minimum(first, second) >= low) & (np.maximum(first, second) <= high) & (length > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(log_ratio_density(y, beta, float(np.log(high / low)))) - np.log(second * length)
    return np.where(inside, value, -np.inf)
