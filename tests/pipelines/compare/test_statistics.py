"""Closed forms, scipy's own tests, and rates of false alarms under simulated nulls."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from viewkit.pipelines.compare.statistics import (
    detectable,
    holm,
    paired,
    power_of,
    seeds_needed,
    sign_flip,
    smallest_p,
    t_test,
)

A = [63.1, 61.2, 65.4, 60.0, 64.8, 62.2]
B = [60.2, 60.9, 63.0, 58.1, 63.9, 60.8]


def test_interval_and_p_are_those_of_scipys_paired_test():
    theirs = stats.ttest_rel(A, B)
    low, high = theirs.confidence_interval(0.95)
    found = paired([a - b for a, b in zip(A, B, strict=True)], alpha=0.05, power=0.8)
    assert (found.low, found.high, found.p_t) == pytest.approx((low, high, theirs.pvalue))
    assert (found.n, found.won) == (6, 1.0) and found.mean == pytest.approx(np.mean(A) - np.mean(B))


@pytest.mark.parametrize(("n", "half_width"), [(3, 2.484), (5, 1.242), (6, 1.049), (10, 0.715)])
def test_half_widths_in_standard_deviations_are_those_of_the_tables_of_t(n, half_width):
    d = stats.zscore(np.arange(n), ddof=1)
    found = paired(d.tolist(), alpha=0.05, power=0.8)
    assert found.sd == pytest.approx(1) and found.high - found.mean == pytest.approx(half_width, abs=1e-3)


@pytest.mark.parametrize(("n", "p"), [(2, 0.5), (3, 0.25), (5, 0.0625), (6, 0.03125), (10, 2 / 1024)])
def test_the_sign_flip_test_has_its_floor_where_all_win(n, p):
    assert sign_flip(np.arange(1.0, n + 1)) == pytest.approx(p) and smallest_p(n) == pytest.approx(p)


def test_the_sign_flip_test_is_a_count_over_all_patterns_of_signs():
    d = np.array([1.2, -0.4, 0.9, 0.0, 2.2, -0.1, 0.4])
    sums = [abs(np.dot(signs, d)) for signs in product((-1, 1), repeat=len(d))]
    assert sign_flip(d) == pytest.approx(np.mean([each >= abs(d.sum()) - 1e-12 for each in sums]))


def test_equal_runs_differ_by_nothing_and_one_pair_says_nothing():
    same = paired([0.0] * 6, alpha=0.05, power=0.8)
    assert (same.p_t, same.p_flip, same.won, same.detectable) == (1.0, 1.0, 0.5, None)
    assert paired([1.5] * 6, alpha=0.05, power=0.8).p_t == 0.0
    rounded = paired([0.1 + 0.2, 0.3], alpha=0.05, power=0.8)
    assert (rounded.sd, rounded.p_t, rounded.detectable) == (0.0, 0.0, None)
    one = paired([1.5], alpha=0.05, power=0.8)
    assert (one.mean, one.low, one.p_t, one.p_flip) == (1.5, None, None, 1.0)


def test_holm_adjusts_as_in_his_procedure():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([0.02]) == [0.02]


def test_without_an_effect_the_power_is_alpha():
    assert [power_of(n, 0.0, 0.05) for n in (2, 6, 50)] == pytest.approx([0.05] * 3)


def test_power_is_that_of_the_published_tables():
    """One-sample t test, n = 20, effect .5: power .5645 (Cohen 1988 has .56)."""
    assert power_of(20, 0.5, 0.05) == pytest.approx(0.5645, abs=5e-4)


def test_what_could_have_been_found_is_found_with_the_power_asked_for():
    rng = np.random.default_rng(0)
    true = detectable(6, 2.0, alpha=0.05, power=0.8)
    assert power_of(6, true / 2.0, 0.05) == pytest.approx(0.8, abs=1e-6)
    runs = rng.normal(true, 2.0, (20_000, 6))
    p = stats.ttest_1samp(runs, 0.0, axis=1).pvalue
    assert np.mean(p <= 0.05) == pytest.approx(0.8, abs=0.01)


def test_the_seeds_that_are_needed_are_the_fewest():
    n = seeds_needed(2.0, 1.0, alpha=0.05, power=0.8, at_least=6)
    assert power_of(n, 0.5, 0.05) >= 0.8 > power_of(n - 1, 0.5, 0.05) and n == 34
    assert seeds_needed(0.1, 1.0, alpha=0.05, power=0.8, at_least=6) == 6
    assert seeds_needed(0.0, 1.0, alpha=0.05, power=0.8, at_least=7) == 7
    assert seeds_needed(1e6, 1.0, alpha=0.05, power=0.8, at_least=6) == 10_000


def test_under_the_null_the_t_test_alarms_at_its_rate_and_its_interval_covers():
    rng = np.random.default_rng(1)
    runs = rng.normal(0, 1.7, (2000, 6))
    alarms = np.mean([t_test(each) <= 0.05 for each in runs])
    assert alarms == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 2000))


def test_under_the_null_holm_alarms_in_no_more_families_than_it_says():
    """Three probes that vary together, as probes of one encoder do."""
    rng = np.random.default_rng(2)
    shared = rng.normal(0, 1, (1000, 1, 6))
    runs = shared + rng.normal(0, 1, (1000, 3, 6))
    p = stats.ttest_1samp(runs, 0.0, axis=2).pvalue
    families = np.mean([min(holm(each)) <= 0.05 for each in p.tolist()])
    assert families <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1000)
    assert np.mean(p.min(axis=1) <= 0.05) > 0.07  # uncorrected, there would be more


def test_under_the_null_the_sign_flip_test_of_six_alarms_at_its_floor():
    """2 / 64: of the 64 patterns of signs, the two in which all agree are the only ones below .05."""
    rng = np.random.default_rng(3)
    runs = rng.standard_t(2, (2000, 6))
    alarms = np.mean([sign_flip(each) <= 0.05 for each in runs])
    assert alarms == pytest.approx(2 / 64, abs=3 * np.sqrt(1 / 32 * 31 / 32 / 2000))
