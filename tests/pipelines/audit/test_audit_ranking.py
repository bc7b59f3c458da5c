import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkit.pipelines.audit.grid import (
    cell_counts,
    cell_means,
    consistency_ranges,
    level_ranges,
    rank_correlation,
    selected_cells,
)
from viewkit.pipelines.audit.ranking import flag_highest, roc_area, roc_curve, roc_error

scored = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40)


def split(pairs):
    return np.array([score for score, _ in pairs], dtype=np.float32), np.array([true for _, true in pairs])


def slow_area(score, truth):
    """Every true one against every false one."""
    won = [float(a > b) + 0.5 * (a == b) for a in score[truth] for b in score[~truth]]
    return sum(won) / len(won) if won else None


@given(scored)
def test_the_roc_area_equals_a_count_over_all_pairs_with_ties_half(pairs):
    score, truth = split(pairs)
    slow, found = slow_area(score, truth), roc_area(score, truth)
    assert (found is None) == (slow is None)
    if slow is not None:
        assert found == pytest.approx(slow, abs=1e-12)


def test_the_roc_area_agrees_with_scikit_learn():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    truth = rng.random(500) < 0.2
    score = np.round(rng.random(500) + 0.3 * truth, 1)
    assert roc_area(score, truth) == pytest.approx(roc_auc_score(truth, score), abs=1e-12)


@pytest.mark.parametrize(("score", "area"), [([0, 1, 2, 3], 1.0), ([3, 2, 1, 0], 0.0), ([5, 5, 5, 5], 0.5)])
def test_known_roc_areas(score, area):
    assert roc_area(np.array(score, dtype=np.float64), np.array([False, False, True, True])) == area


@given(scored.filter(lambda pairs: 0 < sum(true for _, true in pairs) < len(pairs)))
def test_the_area_below_the_curve_is_the_roc_area(pairs):
    score, truth = split(pairs)
    alarms, hits = roc_curve(score, truth)
    assert alarms[0] == hits[0] == 0 and alarms[-1] == hits[-1] == 1
    assert np.trapezoid(hits, alarms) == pytest.approx(roc_area(score, truth), abs=1e-12)


def test_precision_and_recall_of_a_known_ranking():
    score, truth = np.array([9.0, 8, 7, 6, 5]), np.array([True, False, True, True, False])
    assert flag_highest(score, truth, 2) == (0.5, pytest.approx(1 / 3))
    assert flag_highest(score, truth, 5) == (0.6, 1.0)
    assert flag_highest(score, truth, 0) == (None, 0.0)
    assert flag_highest(score, np.zeros(5, dtype=bool), 2) == (0.0, None)


@given(scored, st.data())
def test_equals_at_the_limit_count_as_a_random_choice_among_them(pairs, data):
    score, truth = split(pairs)
    count = data.draw(st.integers(1, len(score)))
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(100):
        order = np.lexsort((rng.random(len(score)), -score))
        draws.append(truth[order[:count]].mean())
    spread = np.std(draws) / np.sqrt(len(draws))
    precision, _ = flag_highest(score, truth, count)
    assert abs(precision - np.mean(draws)) <= 5 * spread + 1e-12


def test_a_value_on_an_edge_belongs_to_the_range_above():
    values = np.array([0.0, 0.7499, 0.75, 0.9, 0.98, 0.99, 1.0], dtype=np.float32)
    np.testing.assert_array_equal(consistency_ranges().place(values), [0, 0, 1, 2, 2, 3, 3])


@pytest.mark.parametrize(
    ("num_exits", "k_al", "labels"),
    [
        (12, 7, ("1 to 3", "4 to 6", "7 to 9", "10 to 13")),
        (6, 3.5, ("1 to 2", "3", "4 to 5", "6 to 7")),
        (2, 3, ("1", "2", "no level", "3")),
    ],
)
def test_levels_are_divided_at_k_al_and_both_parts_halved(num_exits, k_al, labels):
    ranges = level_ranges(num_exits, k_al)
    assert ranges.labels == labels
    levels = np.arange(1, num_exits + 2, dtype=np.float32)
    np.testing.assert_array_equal(ranges.place(levels) >= 2, levels >= k_al)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0, 1)), min_size=1, max_size=60))
def test_the_grid_counts_every_pair_once_and_its_means_are_those_of_a_loop(pairs):
    row, column, values = (np.array(part) for part in zip(*pairs, strict=True))
    counts, means = cell_counts(row, column), cell_means(values, row, column)
    assert counts.sum() == len(pairs)
    for i, j in np.ndindex(4, 4):
        inside = [value for r, c, value in pairs if (r, c) == (i, j)]
        assert counts[i, j] == len(inside)
        assert np.isnan(means[i, j]) if not inside else means[i, j] == pytest.approx(np.mean(inside))


def test_unknown_values_are_left_out_of_a_cells_mean():
    row = np.zeros(3, dtype=np.int64)
    means = cell_means(np.array([np.nan, 2.0, 4.0]), row, row)
    assert means[0, 0] == 3
    assert np.isnan(means.ravel()[1:]).all()


def test_the_selected_cells_are_those_wholly_above_both_thresholds():
    assert np.argwhere(selected_cells(consistency_ranges(), level_ranges(12, 7), 0.99, 7)).tolist() == [[3, 2], [3, 3]]
    assert not selected_cells(consistency_ranges(), level_ranges(12, 7), 0.999, 7).any()


def test_the_rank_correlation_agrees_with_scipy_and_leaves_out_the_unknown():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(3)
    a = rng.integers(0, 5, 200).astype(np.float64)
    b = a + rng.normal(0, 2, 200)
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    with_gaps = np.concatenate([b, [np.nan] * 5])
    assert rank_correlation(np.concatenate([a, np.arange(5)]), with_gaps) == pytest.approx(rank_correlation(a, b))
    assert rank_correlation(np.ones(9), np.arange(9.0)) is None


def test_the_standard_error_is_that_of_repeated_samples():
    """The spread of the area over 120 samples of 200 images of 5 pairs each, whose scores share a part."""
    rng = np.random.default_rng(0)
    areas, errors = [], []
    for _ in range(120):
        image = np.arange(200).repeat(5)
        truth = (rng.random(200) < 0.3)[image]
        score = 0.8 * truth + rng.normal(size=200)[image] + 0.3 * rng.normal(size=1000)
        areas.append(roc_area(score, truth))
        errors.append(roc_error(score, truth, image % 20))
    assert np.mean(errors) == pytest.approx(np.std(areas), rel=0.25)


def test_the_standard_error_is_0_for_a_ranking_without_doubt_and_unknown_for_a_lone_group():
    truth = np.arange(40) % 2 == 0
    score = truth.astype(np.float64)
    assert roc_error(score, truth, np.arange(40) % 4) == 0
    assert roc_error(score, truth, np.zeros(40, dtype=np.int64)) is None
    assert roc_error(score[:2], truth[:2], np.arange(2)) is None
