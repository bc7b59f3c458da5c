import numpy as np
import pytest

from viewkit.pipelines.pairs.column import ScoredPairs
from viewkit.pipelines.pairs.filter import filter_facts
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.consistency import isotonic_curve, posterior, semantic_consistency
from viewkit.pipelines.vs2fi.histogram import CELLS
from viewkit.pipelines.vs2fi.threshold import consistency_threshold


def histograms(positive, negative, curve="bins"):
    """Counts spread evenly over 20 bins that cover the grid from cell 0 on."""
    cells = np.zeros((2, CELLS), dtype=np.int64)
    step = CELLS // 20
    for row, counts in enumerate((positive, negative)):
        for place, count in enumerate(counts):
            cells[row, place * step : place * step + 10] = count
    return Histograms(
        positive_cells=cells[0], negative_cells=cells[1], soft_mean_cells=cells[1:].copy(), bins=20, negatives=3,
        tau=0.2, prior_positive=0.5, estimator="e", policy="p", num_views=2, num_images=4, curve=curve,
    )  # fmt: skip


def test_a_share_of_the_positive_pairs_lies_below_the_threshold():
    rng = np.random.default_rng(0)
    found = histograms(np.arange(1, 21), np.arange(20, 0, -1))
    sample = rng.choice(CELLS, size=200_000, p=found.positive_cells / found.positive_cells.sum())
    consistency = semantic_consistency((sample + 0.5) * 2 / CELLS - 1, found.consistency_curve).astype(np.float32)
    for share in (0.02, 0.08, 0.3, 0.9):
        k_sc, below = consistency_threshold(found, share)
        assert abs(below - share) < 0.01
        assert np.mean(consistency < k_sc) == pytest.approx(below, abs=0.004)


def test_an_estimator_that_tells_ten_groups_apart_gets_a_threshold_that_its_pairs_reach():
    found = histograms([1] * 10 + [10] * 10, [10] * 10 + [1] * 10)  # at most 10 / 11 = .909, and .99 is never reached
    k_sc, below = consistency_threshold(found, 0.08)
    assert k_sc < 0.91 and below == pytest.approx(1 / 11, abs=0.02)


def test_an_isotonic_curve_never_falls_and_pools_counts():
    positive, negative = np.array([1, 6, 3, 10]), np.array([9, 4, 7, 0])
    edges = np.linspace(0, 1, 5)
    s, p = isotonic_curve(positive, negative, edges)
    rough = posterior(positive, negative)
    assert rough[2] < rough[1], "not monotone as it stands"
    np.testing.assert_allclose(p, [0.1, 9 / 20, 9 / 20, 1])  # bins 1 and 2 as one: 6 + 3 of 20
    np.testing.assert_allclose(s, [0.125, 0.375, 0.625, 0.875])


def test_an_isotonic_curve_skips_bins_that_nothing_fell_into_and_leaves_a_rising_one_alone():
    positive, negative = np.array([1, 0, 3]), np.array([3, 0, 1])
    s, p = isotonic_curve(positive, negative, np.array([0.0, 0.2, 0.4, 0.6]))
    np.testing.assert_allclose(s, [0.1, 0.5])
    np.testing.assert_allclose(p, [0.25, 0.75])


def test_histograms_are_read_with_the_curve_they_were_fitted_with():
    counts = [1, 6, 3, 10] * 5, [9, 4, 7, 1] * 5
    rough, smooth = (histograms(*counts, curve=curve).consistency_curve[1] for curve in ("bins", "isotonic"))
    assert (np.diff(rough) < 0).any() and (np.diff(smooth) >= 0).all()


def pairs(consistency, level):
    scores = np.zeros((len(consistency), 1, 3, 10), dtype=np.float32)  # 7 exits
    scores[:, 0, :, 0], scores[:, 0, :, 1] = consistency, level
    return ScoredPairs(
        [str(row) for row in range(len(consistency))], np.zeros((len(consistency), 1, 3, 1), np.float32), scores
    )


def test_a_threshold_that_relaxes_most_rows_and_levels_without_depth_are_said():
    sample = pairs([[0.9, 0.8, 0.7], [0.5, 0.6, 0.93], [0.995, 0.2, 0.1]], [[1, 8, 8], [1, 8, 1], [4, 4, 4]])
    strict, loose = filter_facts(sample, "pairs", 0.99), filter_facts(sample, "pairs", 0.8)
    assert (strict.relaxed, loose.relaxed) == (pytest.approx(2 / 3), 0)
    assert (strict.below, strict.first, strict.none) == pytest.approx((8 / 9, 3 / 9, 3 / 9))
    assert "in more than half of the rows k_SC 0.990 leaves nothing to choose" in strict.lines()[1]
    assert "little depth here: 33 % of the pairs are recognised at the first exit and 33 % at none" in strict.lines()[2]
    assert "relaxed" in loose.lines()[0] and len(loose.lines()) == 2
