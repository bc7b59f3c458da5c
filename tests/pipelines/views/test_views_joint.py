import math
import random

import numpy as np
import pytest
from views_joint import joint_crop, log_ratio_cdf

from viewkit.pipelines.views.joint import (
    joint_pair,
    log_ratio,
    log_ratio_density,
    pair_log_density,
    ratio_cdf,
    ratio_density,
)

BETAS = (-2.0, -1.0, 0.0, 1.0, 2.0)
CROP = (0.2, 1.0)
# Shares of pairs with a ratio above 2, by numerical integration, for beta = -2 ... 2.
OVER_TWO = {
    CROP: (0.78067, 0.63113, 0.56932, 0.51179, 0.35992),
    (0.1, 2.0): (0.91751, 0.81718, 0.76862, 0.73197, 0.62655),
    (0.6, 1.4): (0.29758, 0.21146, 0.18193, 0.14063, 0.05900),
}


def draw(beta: float, low: float, high: float, count: int = 200_000) -> np.ndarray:
    u = np.random.default_rng(1).random((2, count))
    return joint_pair(u[0], u[1], beta, np.full(count, low), np.full(count, high))


def kolmogorov(sample: np.ndarray, cdf: np.ndarray) -> float:
    """Largest distance times sqrt(n); above 1.95 with probability 0.001."""
    n = len(sample)
    return float(max(np.abs(cdf - np.arange(n) / n).max(), np.abs(cdf - np.arange(1, n + 1) / n).max()) * math.sqrt(n))


@pytest.mark.parametrize("span", OVER_TWO)
@pytest.mark.parametrize("at", range(5))
def test_share_of_ratios_above_two(span: tuple[float, float], at: int) -> None:
    pair = draw(BETAS[at], *span)
    ratio = pair.max(axis=1) / pair.min(axis=1)
    assert abs((ratio > 2).mean() - OVER_TWO[span][at]) < 4 * math.sqrt(0.25 / len(pair)) + 5e-5


@pytest.mark.parametrize("beta, expected", zip(BETAS, (0.54814, 0.54791, 0.54853, 0.54791, 0.54814), strict=True))
def test_both_means_and_the_mean_log_ratio(beta: float, expected: float) -> None:
    pair = draw(beta, *CROP, count=400_000)
    assert np.abs(pair.mean(axis=0) - expected).max() < 0.0016
    logs = {-2.0: 1.02780, -1.0: 0.86932, 0.0: 0.80472, 1.0: 0.74012, 2.0: 0.58164}
    assert abs(np.abs(np.log(pair[:, 1] / pair[:, 0])).mean() - logs[beta]) < 0.004


@pytest.mark.parametrize("beta", [-100.0, -2.0, -0.3, 0.0, 1e-6, 1.0, 5.0, 100.0])
def test_the_log_ratio_follows_its_closed_form(beta: float) -> None:
    s_b = math.log(5)
    y = np.sort(log_ratio(np.random.default_rng(2).random(20_000), beta, np.full(20_000, s_b)))
    assert kolmogorov(y, np.array([log_ratio_cdf(value, beta, s_b) for value in y])) < 2.2


@pytest.mark.slow
@pytest.mark.parametrize("beta", BETAS)
def test_a_million_log_ratios_follow_their_closed_form(beta: float) -> None:
    s_b = math.log(5)
    y = np.sort(log_ratio(np.random.default_rng(3).random(1_000_000), beta, np.full(1_000_000, s_b)))
    assert kolmogorov(y, np.array([log_ratio_cdf(value, beta, s_b) for value in y])) < 2.2


@pytest.mark.parametrize("beta", [-1.5, 0.0, 1.5])
def test_areas_have_the_distribution_of_the_algorithm_as_printed(beta: float) -> None:
    rng = random.Random(0)
    reference = np.array([joint_crop(rng, beta, *CROP) for _ in range(20_000)])
    ours = draw(beta, *CROP, count=20_000)
    for name, function in (
        ("first", lambda p: p[:, 0]),
        ("second", lambda p: p[:, 1]),
        ("sum", lambda p: p.sum(axis=1)),
    ):
        a, b = np.sort(function(reference)), np.sort(function(ours))
        merged = np.concatenate([a, b])
        distance = np.abs(np.searchsorted(a, merged, "right") - np.searchsorted(b, merged, "right")).max() / len(a)
        assert distance * math.sqrt(len(a) / 2) < 2.2, name


def test_values_stay_inside_at_the_ends_of_the_distribution() -> None:
    ends = np.array([0.0, 1 - 2**-53, 0.5, 2**-53])
    u, v = (part.ravel() for part in np.meshgrid(ends, ends))
    for beta in (-100.0, -1.0, 0.0, 1.0, 100.0):
        pair = joint_pair(u, v, beta, np.full(16, 0.2), np.full(16, 1.0))
        assert (pair >= 0.2).all() and (pair <= 1.0).all()
    same = joint_pair(u, v, 0.0, np.full(16, 0.7), np.full(16, 0.7))
    assert (same == 0.7).all()


def test_turning_beta_around_mirrors_the_size_of_the_ratio() -> None:
    # |log r| under -beta is s_b minus |log r| under beta, draw by draw.
    u, s_b = np.random.default_rng(0).random(1000), np.full(1000, 2.0)
    assert np.allclose(np.abs(log_ratio(u, -1.3, s_b)), 2.0 - np.abs(log_ratio(u, 1.3, s_b)), atol=1e-12)


def test_independent_areas_exceed_two_in_nine_of_thirty_two_pairs() -> None:
    # The paper says 18.75 %, which its own eq. 9 contradicts.
    low, high = CROP
    assert abs(2 * float(ratio_cdf(np.array(0.5), low, high)) - 9 / 32) < 1e-12
    for threshold, share in ((1.25, 0.703125), (1.5, 0.510417), (3.0, 0.083333), (4.0, 0.015625)):
        assert abs(2 * float(ratio_cdf(np.array(1 / threshold), low, high)) - share) < 1e-6
    assert abs(2 * float(ratio_cdf(np.array(0.5), 0.08, 1.0)) - 0.416824) < 1e-6
    x = np.linspace(0.2, 5, 400_001)
    density = ratio_density(x, low, high)
    assert abs(np.trapezoid(density, x) - 1) < 1e-6
    assert np.allclose(ratio_density(np.array([0.5, 2.0]), low, high), [25 / 32 - 1 / 8, -1 / 32 + 25 / 128])


@pytest.mark.parametrize("beta", [-1.5, 0.0, 2.0])
def test_densities_sum_to_one_and_the_pair_is_exchangeable(beta: float) -> None:
    y = np.linspace(-math.log(5), math.log(5), 200_001)
    assert abs(np.trapezoid(log_ratio_density(y, beta, math.log(5)), y) - 1) < 1e-4
    grid = 0.2 + 0.8 * (np.arange(900) + 0.5) / 900
    first, second = np.meshgrid(grid, grid, indexing="ij")
    density = np.exp(pair_log_density(first, second, beta, *CROP))
    assert abs(density.sum() * (0.8 / 900) ** 2 - 1) < 0.01
    assert np.allclose(density, density.T, rtol=1e-9)
