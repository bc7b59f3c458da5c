"""Paired differences over seeds: interval, tests, and what could have been found.

The t interval is the one that covers with few seeds; a percentile bootstrap over five seeds at nominal 95 % does so in
82 % of cases. The sign-flip test assumes no more than that a difference is as likely as its opposite.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

EXACT = 14
"""Differences up to which all 2^n patterns of signs are counted; beyond, `SAMPLED` of them."""
SAMPLED = 100_000
FAR = 4.0
"""Standard errors of a true difference beyond which nobody finds its opposite."""
MAX_SEEDS = 10_000
"""Seeds beyond which "needs about N" says that many."""


@dataclass(frozen=True, kw_only=True)
class Paired:
    """n differences of pairs of runs with the same seed.

    mean, sd: of the differences. low, high: t interval at 1 - alpha; None with one pair. p_t: of Student's test of one
    sample. p_flip: of the exact sign-flip test. won: share of pairs with a difference above 0, equal ones counted half.
    detectable: the true difference that n pairs with this sd find with `power`; None with one pair or without spread.
    """

    differences: tuple[float, ...]
    mean: float
    sd: float | None
    low: float | None
    high: float | None
    p_t: float | None
    p_flip: float
    won: float
    detectable: float | None

    @property
    def n(self) -> int:
        return len(self.differences)


def paired(differences: Sequence[float], *, alpha: float, power: float, level: float | None = None) -> Paired:
    """alpha: of the interval, two-sided. level: of the test that `detectable` is found by, alpha unless given."""
    d = np.asarray(differences, dtype=np.float64)
    n, mean = len(d), float(np.mean(d))
    won = float(np.mean((d > 0) + 0.5 * (d == 0)))
    if n < 2:
        return Paired(differences=tuple(map(float, d)), mean=mean, sd=None, low=None, high=None, p_t=None,
                      p_flip=1.0, won=won, detectable=None)  # fmt: skip
    sd = 0.0 if equal(d) else float(np.std(d, ddof=1))
    half = float(stats.t.ppf(1 - alpha / 2, n - 1)) * sd / math.sqrt(n)
    return Paired(
        differences=tuple(map(float, d)),
        mean=mean,
        sd=sd,
        low=mean - half,
        high=mean + half,
        p_t=t_test(d),
        p_flip=sign_flip(d),
        won=won,
        detectable=detectable(n, sd, alpha=level or alpha, power=power) if sd > 0 else None,
    )


def t_test(d: Float[np.ndarray, " n"]) -> float:
    """Two-sided p of Student's test that the mean is 0; without any spread 1 where all are 0, else 0."""
    if equal(d):
        return 0.0 if d[0] else 1.0
    return float(stats.ttest_1samp(d, 0.0).pvalue)


def equal(d: Float[np.ndarray, " n"]) -> bool:
    """Whether all are the same but for rounding."""
    return bool(np.ptp(d) <= 1e-9 * np.abs(d).max())


def sign_flip(d: Float[np.ndarray, " n"]) -> float:
    """Two-sided p of the mean under all patterns of signs, 2 / 2^n at least (Fisher 1935, sec. 21)."""
    found = stats.permutation_test(
        (d,),
        np.mean,
        permutation_type="samples",
        n_resamples=np.inf if len(d) <= EXACT else SAMPLED,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def smallest_p(n: int) -> float:
    """The least p that the two-sided sign-flip test of n differences can have."""
    return min(1.0, 2.0 ** (1 - n))


def power_of(n: int, effect: float, alpha: float) -> float:
    """Probability that Student's two-sided test of n differences finds a mean of `effect` standard deviations."""
    quantile = float(stats.t.ppf(1 - alpha / 2, n - 1))
    shift = effect * math.sqrt(n)
    found = float(stats.nct.sf(quantile, n - 1, shift))
    if shift < FAR:  # else the other side is empty, and scipy's series for it does not converge
        found += float(stats.nct.cdf(-quantile, n - 1, shift))
    return found


def detectable(n: int, sd: float, *, alpha: float, power: float) -> float:
    """The true mean difference that n differences with this standard deviation find with `power`."""
    top = 1 / math.sqrt(n)
    while power_of(n, top, alpha) < power:
        top *= 2
    effect = optimize.brentq(lambda x: power_of(n, x, alpha) - power, 0.0, top)
    return float(effect) * sd


def seeds_needed(sd: float, wanted: float, *, alpha: float, power: float, at_least: int) -> int:
    """The fewest seeds that find a true difference of `wanted` with `power`, at least `at_least`."""
    if sd == 0:
        return at_least
    low, high = at_least, at_least
    while power_of(high, wanted / sd, alpha) < power:
        low, high = high, 2 * high
        if high > MAX_SEEDS:
            return MAX_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if power_of(middle, wanted / sd, alpha) < power else (low, middle)
    return high


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p values (Holm 1979): rejecting those up to alpha errs in any of them with probability alpha at most."""
    order = np.argsort(p, kind="stable")
    adjusted, worst = [0.0] * len(p), 0.0
    for rank, place in enumerate(order):
        worst = max(worst, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = worst
    return adjusted
