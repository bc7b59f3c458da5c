"""Slow reference implementations of the joint distributions: plain loops with the standard library's functions."""

import math
import random
from statistics import NormalDist


def joint_crop(rng: random.Random, beta: float, low: float, high: float) -> tuple[float, float]:
    """J-Crop(beta), line by line (Zhang et al. 2025, Alg. 1); the truncated normal by rejection."""
    s_b = math.log(high / low)
    if beta == 0:
        log_ratio = rng.uniform(-s_b, s_b)
    else:
        while True:
            log_ratio = rng.gauss(0.0, s_b / abs(beta))
            if -s_b <= log_ratio <= s_b:
                break
        if beta < 0:
            log_ratio = -s_b - log_ratio if log_ratio < 0 else s_b - log_ratio
    ratio = math.exp(log_ratio)
    first = rng.uniform(max(low, low / ratio), min(high / ratio, high))
    return first, first * ratio


def log_ratio_cdf(y: float, beta: float, s_b: float) -> float:
    """P(log ratio <= y) under JC(beta)."""
    if beta == 0:
        return (y + s_b) / (2 * s_b)
    normal = NormalDist(0.0, s_b / abs(beta))
    mass = normal.cdf(s_b) - normal.cdf(-s_b)
    if beta > 0:
        return (normal.cdf(y) - normal.cdf(-s_b)) / mass
    if y < 0:  # the left half turned around: P(-s_b - y <= X <= 0)
        return (0.5 - normal.cdf(-s_b - y)) / mass
    return 0.5 + (normal.cdf(s_b) - normal.cdf(s_b - y)) / mass
