import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkit.pipelines.views.select import SELECTIONS, Candidates, pairs_of, select_pairs, vs2fi_survivors
from viewkit.shards.errors import ConfigError, DataError

DRAWS = np.random.default_rng(0).random((6000, 4))


def test_pairs_are_lexicographic():
    assert pairs_of(4).tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert len(pairs_of(5)) == 10


def test_consistency_is_filtered_first_so_something_is_always_left():
    consistency, levels = np.array([[0.995, 0.5, 0.9]]), np.array([[3.0, 9.0, 2.0]])
    assert vs2fi_survivors(consistency, levels, 0.99, 7.0).tolist() == [[True, False, False]]
    assert vs2fi_survivors(consistency, levels, 0.8, 7.0).tolist() == [[True, False, False]]
    assert vs2fi_survivors(consistency, levels, 0.8, 1.5).tolist() == [[True, False, True]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 1), st.floats(1, 13), st.integers(2, 6))
def test_vs2fi_never_leaves_nothing_and_follows_the_algorithm_by_hand(seed, k_sc, k_al, v):
    rng = np.random.default_rng(seed)
    consistency, levels = rng.random((5, len(pairs_of(v)))).round(1), rng.integers(1, 14, (5, len(pairs_of(v)))) * 1.0
    kept = vs2fi_survivors(consistency, levels, k_sc, k_al)
    for row in range(5):
        first = [p for p in range(len(consistency[row])) if consistency[row, p] >= min(k_sc, max(consistency[row]))]
        highest = max(levels[row, p] for p in first)
        second = [p for p in first if levels[row, p] >= min(k_al, highest)]
        assert second and np.flatnonzero(kept[row]).tolist() == second


def test_vs2fi_takes_each_survivor_equally_often():
    candidates = Candidates(
        num_views=3,
        consistency=np.tile([0.9, 0.2, 0.8], (6000, 1)),
        levels=np.tile([8.0, 13.0, 9.0], (6000, 1)),
        k_sc=0.75,
        k_al=7,
    )
    pairs = np.sort(select_pairs("vs2fi", candidates, DRAWS), axis=1)
    assert set(map(tuple, pairs.tolist())) == {(0, 1), (1, 2)}
    assert abs((pairs[:, 0] == 0).mean() - 0.5) < 0.03


def test_ties_go_to_the_earlier_pair():
    losses = np.array([[1.0, 5.0, 5.0], [2.0, 2.0, 2.0]])
    candidates = Candidates(num_views=3, losses=losses)
    assert np.sort(select_pairs("hard", candidates, DRAWS[:2]), axis=1).tolist() == [[0, 2], [0, 1]]
    assert np.sort(select_pairs("easy", candidates, DRAWS[:2]), axis=1).tolist() == [[0, 1], [0, 1]]


def test_lowest_iou_takes_the_pair_that_overlaps_least():
    boxes = np.array([[[0, 0, 0.5, 0.5], [0, 0, 0.6, 0.6], [0.55, 0.55, 0.45, 0.45]]])
    assert sorted(select_pairs("lowest_iou", Candidates(num_views=3, boxes=boxes), DRAWS[:1])[0]) == [0, 2]


def test_the_order_of_the_final_pair_is_random_and_its_views_differ():
    pairs = select_pairs("random", Candidates(num_views=4), DRAWS)
    assert abs((pairs[:, 0] < pairs[:, 1]).mean() - 0.5) < 0.03
    counts = np.unique(np.sort(pairs, axis=1), axis=0, return_counts=True)[1]
    assert len(counts) == 6 and counts.min() > 850
    assert set(np.sort(select_pairs("first", Candidates(num_views=4), DRAWS), axis=1).ravel().tolist()) == {0, 1}


def test_what_cannot_be_selected_is_said():
    with pytest.raises(ConfigError, match="selection is 'best'; needed one of first, random"):
        select_pairs("best", Candidates(num_views=2), DRAWS[:1])
    with pytest.raises(ConfigError, match="num_views is 1; a pair needs at least 2"):
        select_pairs("random", Candidates(num_views=1), DRAWS[:1])
    for name in set(SELECTIONS) - {"first", "random"}:
        with pytest.raises(ConfigError, match=f"selection '{name}' needs"):
            select_pairs(name, Candidates(num_views=2), DRAWS[:1])
    unknown = Candidates(num_views=2, consistency=np.array([[np.nan]]), levels=np.array([[3.0]]))
    with pytest.raises(DataError, match="vs2fi: consistency of row 0 is not a number"):
        select_pairs("vs2fi", unknown, DRAWS[:1])
