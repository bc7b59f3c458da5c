from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.rules import Facts, Limits, facts_of, keep_pairs
from viewkit.pipelines.pairs.select import select_kept
from viewkit.pipelines.pairs.selections import SELECT
from viewkit.pipelines.views.recipe import BOX, SOURCE, neutral_recipes
from viewkit.pipelines.views.sample import sample_permutations
from viewkit.shards.errors import ConfigError, DataError

RULES = [name for name, each in SELECT.items() if each.stored]
CORNERS = [(0, 0, 0.5, 0.5), (0, 0, 0.5, 1), (0.5, 0.5, 0.5, 0.5), (0, 0.25, 0.5, 0.5)]
"""View 0 is the upper left quarter, 1 the upper half, 2 the lower right quarter, 3 the middle of the upper half."""
OVERLAPS = [1 / 2, 0, 1 / 3, 0, 1 / 2, 0]
"""Of pairs (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)."""


def recipes_of(*boxes, source=None):
    found = neutral_recipes(len(boxes), 32)
    found[:, BOX] = boxes
    if source is not None:
        found[:, SOURCE] = source
    return found[None]


def scores_of(similarity, consistency=None, level=None):
    """One row of c pairs with an estimator of three blocks."""
    scores = np.zeros((1, len(similarity), 6), dtype=np.float32)
    scores[0, :, 2] = similarity
    scores[0, :, 0] = similarity if consistency is None else consistency
    scores[0, :, 1] = 1 if level is None else level
    return scores


def kept(select, facts, **limits):
    return keep_pairs(select, facts, Limits(**limits)).pairs.tolist()


def relaxed(select, facts):
    return keep_pairs(select, facts).counted["relaxed_pairs"].tolist()


def test_every_rule_by_hand():
    facts = facts_of(recipes_of(*CORNERS), scores_of([0.1, 0.9, 0.8, 0.3, 0.7, 0.2]))
    np.testing.assert_allclose(facts.overlaps, [OVERLAPS])
    assert kept("stored", facts) == [[True] * 6]
    assert kept("similar", facts) == [[False, True, False, False, False, False]]
    assert kept("overlap", facts) == [[True, False, True, False, True, False]]
    assert kept("most_overlap", facts) == [[True, False, False, False, False, False]], "ties go to the earlier pair"
    assert kept("combined", facts) == [[False, False, True, False, False, False]]
    assert kept("vs2fi", facts, k_sc=0.75, k_al=1) == [[False, True, True, False, False, False]]
    assert not any(relaxed(name, facts)[0] for name in ("overlap", "most_overlap", "combined"))


def test_where_nothing_overlaps_any_pair_is_kept_and_the_row_is_counted():
    apart = facts_of(
        recipes_of((0, 0, 0.2, 0.2), (0.4, 0.4, 0.2, 0.2), (0.8, 0.8, 0.2, 0.2)), scores_of([0.1, 0.4, 0.3])
    )
    assert kept("overlap", apart) == [[True] * 3] and relaxed("overlap", apart) == [True]
    assert kept("most_overlap", apart) == [[True, False, False]] and relaxed("most_overlap", apart) == [True]
    assert kept("combined", apart) == [[False, True, False]] and relaxed("combined", apart) == [True]


@pytest.mark.parametrize("parts", [3, 7, 10])
def test_crops_that_touch_at_an_edge_share_no_area(parts):
    """Their edges are not numbers of float32, so the intersection is not exactly 0."""
    boxes = [(0, place / parts, 1, 1 / parts) for place in range(parts)]
    facts = facts_of(recipes_of(*boxes))
    assert facts.overlaps.max() < 1e-6 and relaxed("overlap", facts) == [True]


def test_crops_of_two_images_do_not_overlap_wherever_they_lie():
    facts = facts_of(recipes_of(*[(0, 0, 1, 1)] * 3, source=[0, 1, 1]))
    assert facts.overlaps.tolist() == [[0, 0, 1]]
    assert kept("overlap", facts) == kept("most_overlap", facts) == [[False, False, True]]


def test_semantic_consistency_alone_and_alignment_level_alone_are_limits_of_vs2fi():
    facts = facts_of(recipes_of(*CORNERS[:3]), scores_of([0, 0, 0], consistency=[0.9, 0.2, 0.6], level=[1, 4, 2]))
    assert kept("vs2fi", facts, k_sc=0.5, k_al=1) == [[True, False, True]], "consistency alone"
    assert kept("vs2fi", facts, k_sc=0, k_al=2) == [[False, True, True]], "level alone"
    assert kept("vs2fi", facts, k_sc=0, k_al=1) == [[True, True, True]], "neither"


def test_the_oracle_by_hand():
    nan = np.nan
    rows = [[0.2, 0.5, 0.9], [0.2, 0.0, 0.4], [0, 0, 0], [nan, 0.1, nan], [nan, nan, nan]]
    facts = Facts(np.zeros((5, 3)), common=np.array(rows))
    found = keep_pairs("oracle", facts)
    assert found.pairs.tolist() == [
        [False, True, True],
        [False, False, True],
        [True, False, False],
        [False, True, False],
        [True, True, True],
    ]
    assert found.counted["relaxed_pairs"].tolist() == [False, True, True, True, False]
    assert found.counted["missing_truth"].tolist() == [False] * 4 + [True]
    assert kept("oracle", facts, oracle_share=0.1)[1] == [True, False, True]


def random_facts(seed, rows=8, views=5):
    """Facts with ties, rows without overlap, and pairs whose truth is not known."""
    rng = np.random.default_rng(seed)
    recipes = neutral_recipes(rows * views, 32).reshape(rows, views, -1)
    extent = rng.choice([0.2, 0.4], (rows, views, 2))
    recipes[:, :, BOX] = np.concatenate([rng.random((rows, views, 2)).round(1) * (1 - extent), extent], axis=2)
    recipes[:, :, SOURCE] = rng.integers(0, 2, (rows, views))
    c = len(pair_index(views))
    scores = rng.random((rows, c, 6)).round(1).astype(np.float32)
    scores[:, :, 1] = rng.integers(1, 5, (rows, c))
    common = np.where(rng.random((rows, c)) < 0.3, np.nan, rng.random((rows, c)).round(1))
    common[rng.random(rows) < 0.2] = np.nan
    return facts_of(recipes, scores, common)


def rows_of(facts, order):
    return Facts(facts.overlaps[order], facts.scores[order], facts.common[order])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(RULES))
def test_a_rule_keeps_something_of_every_row_whatever_the_others_and_a_placebo_keeps_as_much(seed, select):
    facts = random_facts(seed)
    limits = Limits(k_sc=0.7, k_al=2)
    found = keep_pairs(select, facts, limits)
    assert found.pairs.any(axis=1).all() and {*found.counted} == {*SELECT[select].counted}
    order = np.random.default_rng(seed).permutation(len(facts.overlaps))
    assert np.array_equal(keep_pairs(select, rows_of(facts, order), limits).pairs, found.pairs[order])
    pairs = sample_permutations(row_ids([str(row) for row in range(8)]), 10, seed=seed, stage="x", round=0)
    placebo = keep_pairs(select, facts.permuted(pairs), limits)
    assert np.array_equal(placebo.pairs.sum(axis=1), found.pairs.sum(axis=1))
    for name, rows in found.counted.items():
        assert np.array_equal(placebo.counted[name], rows)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_the_oracle_takes_no_pair_without_a_shared_object_where_there_is_another(seed):
    facts = random_facts(seed)
    found = keep_pairs("oracle", facts).pairs
    sharing = (facts.common > 0).any(axis=1)
    assert (facts.common > 0)[sharing][found[sharing]].all()


def test_a_permutation_of_pairs_has_each_order_equally_often_and_another_one_every_epoch():
    ids = row_ids([f"row{place}" for place in range(6000)])
    first = sample_permutations(ids, 3, seed=0, stage="pretrain", round=0)
    counts = Counter(map(tuple, first.tolist()))
    assert len(counts) == 6 and min(counts.values()) > 900 and max(counts.values()) < 1100
    assert (first == sample_permutations(ids, 3, seed=0, stage="pretrain", round=1)).all(axis=1).mean() < 0.2
    assert (first == sample_permutations(ids, 3, seed=1, stage="pretrain", round=0)).all(axis=1).mean() < 0.2
    assert np.array_equal(first[7:9], sample_permutations(ids[7:9], 3, seed=0, stage="pretrain", round=0))
    many = sample_permutations(ids[:50], 45, seed=0, stage="pretrain", round=0)
    assert (np.sort(many, axis=1) == np.arange(45)).all()


def test_a_placebo_hands_all_that_is_known_of_a_pair_to_one_other_pair():
    facts = random_facts(0)
    order = sample_permutations(row_ids([str(row) for row in range(8)]), 10, seed=0, stage="x", round=0)
    moved = facts.permuted(order)
    for row in range(8):
        assert np.array_equal(moved.scores[row], facts.scores[row][order[row]])
        assert np.array_equal(moved.overlaps[row], facts.overlaps[row][order[row]])
        assert np.array_equal(moved.common[row], facts.common[row][order[row]], equal_nan=True)


def test_one_of_the_kept_pairs_is_taken_uniformly():
    facts = facts_of(np.repeat(recipes_of(*CORNERS), 6000, axis=0))
    chosen = Counter(select_kept(keep_pairs("overlap", facts).pairs, np.random.default_rng(0).random(6000)).tolist())
    assert {*chosen} == {0, 2, 4} and min(chosen.values()) > 1850


def test_what_cannot_be_selected_by_is_said():
    facts = facts_of(recipes_of(*CORNERS))
    with pytest.raises(ConfigError, match="select is 'hard'; of stored pairs it must be one of stored, vs2fi, similar"):
        keep_pairs("hard", facts)
    with pytest.raises(ConfigError, match="select is 'best'; of stored pairs"):
        keep_pairs("best", facts)
    with pytest.raises(DataError, match="select is 'combined' and of the pairs no scores are known"):
        keep_pairs("combined", facts)
    with pytest.raises(DataError, match="select is 'oracle' and of the pairs no objects are known"):
        keep_pairs("oracle", facts)
    with pytest.raises(DataError, match="a similarity of row 0 is not a number; score the pairs again"):
        keep_pairs("similar", replace(facts, scores=scores_of([np.nan] * 6)))
