import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.select import (
    order_pairs,
    select_kept,
    select_lowest_iou,
    vs2fi_survivors,
)
from viewkit.shards.errors import ConfigError, DataError

U = np.random.default_rng(0).random((6000, 2))


def test_consistency_is_filtered_first_so_something_is_always_left():
    consistency, levels = np.array([[0.995, 0.5, 0.9]]), np.array([[3.0, 9.0, 2.0]])
    assert vs2fi_survivors(consistency, levels, 0.99, 7.0).tolist() == [[True, False, False]]
    assert vs2fi_survivors(consistency, levels, 0.8, 7.0).tolist() == [[True, False, False]]
    assert vs2fi_survivors(consistency, levels, 0.8, 1.5).tolist() == [[True, False, True]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 1), st.floats(1, 13), st.integers(2, 6))
def test_vs2fi_never_leaves_nothing_and_follows_the_algorithm_by_hand(seed, k_sc, k_al, v):
    rng, c = np.random.default_rng(seed), len(pair_index(v))
    consistency, levels = rng.random((5, c)).round(1), rng.integers(1, 14, (5, c)) * 1.0
    kept = vs2fi_survivors(consistency, levels, k_sc, k_al)
    for row in range(5):
        first = [p for p in range(len(consistency[row])) if consistency[row, p] >= min(k_sc, max(consistency[row]))]
        highest = max(levels[row, p] for p in first)
        second = [p for p in first if levels[row, p] >= min(k_al, highest)]
        assert second and np.flatnonzero(kept[row]).tolist() == second


def test_vs2fi_takes_each_survivor_equally_often():
    consistency, levels = np.tile([0.9, 0.2, 0.8], (6000, 1)), np.tile([8.0, 13.0, 9.0], (6000, 1))
    selected = select_kept(vs2fi_survivors(consistency, levels, 0.75, 7), U[:, 0])
    assert set(selected.tolist()) == {0, 2}
    assert abs((selected == 0).mean() - 0.5) < 0.03


def test_ties_go_to_the_earlier_pair():
    boxes = np.array([[[0, 0, 0.4, 0.4], [0.5, 0.5, 0.4, 0.4], [0, 0.5, 0.4, 0.4]]])
    assert select_lowest_iou(boxes).tolist() == [0]


def test_lowest_iou_takes_the_pair_that_overlaps_least():
    boxes = np.array([[[0, 0, 0.5, 0.5], [0, 0, 0.6, 0.6], [0.55, 0.55, 0.45, 0.45]]])
    assert pair_index(3)[select_lowest_iou(boxes)].tolist() == [[0, 2]]


def test_the_order_of_the_final_pair_is_random_and_its_views_differ():
    pairs = order_pairs((6 * U[:, 0]).astype(np.int64), 4, U[:, 1])
    assert abs((pairs[:, 0] < pairs[:, 1]).mean() - 0.5) < 0.03
    counts = np.unique(np.sort(pairs, axis=1), axis=0, return_counts=True)[1]
    assert len(counts) == 6 and counts.min() > 850


def test_what_cannot_be_selected_is_said():
    with pytest.raises(ConfigError, match="num_views is 1; a pair needs at least 2"):
        order_pairs(np.array([0]), 1, U[:1, 0])
    with pytest.raises(DataError, match="vs2fi: consistency of row 0 is not a number; score the pairs again"):
        vs2fi_survivors(np.array([[np.nan]]), np.array([[3.0]]), 0.99, 7)
