from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pairs.random import RandomPairs
from viewkit.pipelines.pairs.rules import Limits
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.stored import StoredPairs
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import BOX, EDGE, SOURCE, column, neutral_recipes
from viewkit.pipelines.views.sample import sample_recipes, sample_selection
from viewkit.shards.errors import ConfigError, DataError

POLICY = load_policy("moco_v3").with_side(32)
ROUNDS, VIEWS, EXITS = 2, 5, 6
PAIRS = list(combinations(range(VIEWS), 2))


def sample(key, rng, generated=False):
    """A scored row whose recipe of view v in round r has brightness 1 + v / 10 + r."""
    recipes = neutral_recipes(ROUNDS * VIEWS, 32).reshape(ROUNDS, VIEWS, -1)
    recipes[:, :, column("brightness")] = 1 + np.arange(VIEWS) / 10 + np.arange(ROUNDS)[:, None]
    scores = np.zeros((ROUNDS, len(PAIRS), 2 + 1 + EXITS), dtype=np.float32)
    scores[:, :, 0] = rng.choice([0.3, 0.9, 0.995, 0.999], scores.shape[:2])
    scores[:, :, 1] = rng.integers(1, EXITS + 2, scores.shape[:2])
    image = torch.zeros(40, 40, 3, dtype=torch.uint8)
    return Sample(key, image, image if generated else None, recipes, scores)


def samples(count=30, generated=False):
    rng = np.random.default_rng(0)
    return [sample(f"row{k}", rng, generated) for k in range(count)]


def filtered_pairs(alpha=0.0, k_sc=0.99, k_al=None, **options):
    random = RandomPairs(POLICY, seed=0, stage="pretrain", alpha=alpha)
    return StoredPairs(random, "vs2fi", Limits(k_sc=k_sc, k_al=k_al), **options)


def survivors(scores, k_sc, k_al):
    """VS-2FI Alg. 1 as a loop, the level's maximum over what the first filter leaves."""
    best = max(row[0] for row in scores)
    kept = [index for index, row in enumerate(scores) if row[0] >= min(k_sc, best)]
    highest = max(scores[index][1] for index in kept)
    return {PAIRS[index] for index in kept if scores[index][1] >= min(k_al, highest)}


def views_of(recipes, round):
    return np.rint((recipes[:, :, column("brightness")] - 1 - round) * 10).astype(int)


@pytest.mark.parametrize(("k_al", "least"), [(5.0, 5.0), (None, 7 / 12 * EXITS)])
def test_every_pair_survives_both_filters_and_every_survivor_is_drawn(k_al, least):
    rows = samples()
    drawn = [set() for _ in rows]
    for epoch in range(0, 160, 2):
        for row, pair in enumerate(views_of(filtered_pairs(k_al=k_al)(rows, epoch).recipes, 0)):
            drawn[row].add(tuple(pair))
    for row, pairs in zip(rows, drawn, strict=True):
        expected = survivors(row.scores[0], np.float32(0.99), least)
        assert {tuple(sorted(pair)) for pair in pairs} == expected
        assert all((b, a) in pairs for a, b in pairs), "either order is drawn"


def test_epochs_cycle_through_the_rounds():
    rows = samples(4)
    for epoch in range(4):
        pairs = views_of(filtered_pairs()(rows, epoch).recipes, epoch % ROUNDS)
        assert ((pairs >= 0) & (pairs < VIEWS)).all()


def test_a_row_chooses_the_same_whatever_its_neighbours():
    rows = samples()
    together = filtered_pairs(alpha=0.5)(rows, 3).recipes
    assert np.array_equal(filtered_pairs(alpha=0.5)(rows[7:9], 3).recipes, together[7:9])


def test_rows_without_scores_fall_back_to_random_pairs_and_are_counted():
    rows = samples(6)
    rows[2] = Sample("row2", rows[2].image)
    rows[5] = Sample("row5", rows[5].image)
    plan = filtered_pairs()(rows, 0)
    assert plan.counts == {"missing_pairs": 2, "missing_views": 0, "relaxed_pairs": 0}
    random = RandomPairs(POLICY, seed=0, stage="pretrain")([rows[2], rows[5]], 0).recipes
    assert np.array_equal(plan.recipes[[2, 5]], random)
    scored = [0, 1, 3, 4]
    assert np.array_equal(plan.recipes[scored], filtered_pairs()([rows[k] for k in scored], 0).recipes)


def test_alpha_turns_exactly_one_view_to_the_generated_image():
    rows = samples(40, generated=True)
    sources = np.concatenate([filtered_pairs(alpha=0.5)(rows, epoch).recipes[:, :, SOURCE] for epoch in range(40)])
    assert set(sources.sum(axis=1)) == {0, 1}
    assert sources.sum(axis=1).mean() == pytest.approx(0.5, abs=0.04)
    assert sources[:, 0].mean() == pytest.approx(sources[:, 1].mean(), abs=0.04)
    lacking = filtered_pairs(alpha=1.0)(samples(40), 0)
    assert not lacking.recipes[:, :, SOURCE].any() and lacking.counts == {
        "missing_pairs": 0,
        "missing_views": 40,
        "relaxed_pairs": 0,
    }


def test_scores_that_do_not_fit_the_recipes_name_the_row():
    rows = samples(2)
    rows[1] = Sample("row1", rows[1].image, None, rows[1].recipes, rows[1].scores[:, :3])
    with pytest.raises(DataError, match=r"row row1 has scores of shape \(2, 3, 9\)"):
        filtered_pairs()(rows, 0)


def stored(quality=False, **options):
    return StoredPairs(RandomPairs(POLICY, seed=0, stage="pretrain", **options), quality=quality)


def test_stored_pairs_are_drawn_without_any_filter():
    rows = samples(6)
    drawn = [set() for _ in rows]
    for epoch in range(0, 400, 2):
        for row, pair in enumerate(views_of(stored()(rows, epoch).recipes, 0)):
            drawn[row].add(tuple(pair))
    everything = {*PAIRS, *((b, a) for a, b in PAIRS)}
    assert drawn == [everything] * len(rows)


def test_a_stored_pair_is_the_one_that_the_rows_own_uniforms_name():
    rows = samples(20)
    u = sample_selection(row_ids([row.key for row in rows]), seed=0, stage="pretrain", round=3)
    named = [PAIRS[int(which * len(PAIRS))][:: 1 if order >= 0.5 else -1] for which, order, *_ in u]
    assert [tuple(pair) for pair in views_of(stored()(rows, 3).recipes, 1)] == named


@pytest.mark.parametrize("shape", [(64, 256), (256, 64), (128, 128)])
def test_a_stored_box_keeps_area_and_aspect_on_a_generated_image_of_another_shape(shape):
    """Boxes of a policy on images of 200 x 600 px, which a run with alpha 1 cuts from generated images."""
    policy = load_policy("strengthened").with_side(32)
    keys = [f"row{number}" for number in range(300)]
    recipes = sample_recipes(policy, row_ids(keys), np.tile([200, 600], (300, 1)), seed=0, stage="score", round=0,
                             num_views=2)  # fmt: skip
    rows = [
        Sample(key, torch.zeros(200, 600, 3, dtype=torch.uint8), torch.zeros(*shape, 3, dtype=torch.uint8), own[None])
        for key, own in zip(keys, recipes, strict=True)
    ]
    plan = stored(alpha=1.0, generated="both")(rows, 0).recipes

    def boxes_of(views):
        """[n 2 4] with the smaller crop of a row first."""
        boxes = views[..., BOX].astype(np.float64)
        order = np.argsort(boxes[..., 2] * boxes[..., 3], axis=1)
        return np.take_along_axis(boxes, order[..., None], axis=1)

    top, left, height, width = np.moveaxis(boxes_of(plan), -1, 0)
    assert (plan[..., SOURCE] == 1).all()
    assert top.min() >= 0 and left.min() >= 0 and (top + height).max() <= 1 + EDGE and (left + width).max() <= 1 + EDGE
    _, _, old_height, old_width = np.moveaxis(boxes_of(recipes), -1, 0)
    assert np.allclose(height * width, old_height * old_width, atol=1e-5)
    fits = (height < 0.999) & (width < 0.999)
    aspects = width * shape[1] / (height * shape[0]), old_width * 600 / (old_height * 200)
    assert fits.mean() > 0.15 and np.allclose(aspects[0][fits], aspects[1][fits], rtol=1e-4)


def test_boxes_on_generated_images_of_the_same_shape_keep_their_bits():
    rows = samples(40, generated=True)
    one, none = (stored(alpha=alpha)(rows, 1).recipes[..., BOX] for alpha in (1.0, 0.0))
    assert np.array_equal(one, none)


def test_alpha_turns_both_views_of_a_stored_pair_where_both_are_asked_for():
    rows = samples(40, generated=True)
    one, both = (stored(alpha=0.5, generated=mode)(rows, 1).recipes[:, :, SOURCE] for mode in ("one", "both"))
    assert set(one.sum(axis=1)) == {0, 1}
    assert np.array_equal(both.sum(axis=1), 2 * one.sum(axis=1))
    lacking = stored(alpha=1.0, generated="both")(samples(40), 0)
    assert not lacking.recipes[:, :, SOURCE].any() and lacking.counts["missing_views"] == 80


def test_alpha_makes_exactly_one_view_generated_whatever_the_views_were_cropped_from():
    rows = samples(20, generated=True)
    for row in rows:
        row.recipes[:, :, SOURCE] = 1
    assert (stored(alpha=1.0)(rows, 0).recipes[:, :, SOURCE].sum(axis=1) == 1).all()
    assert (stored()(rows, 0).recipes[:, :, SOURCE].sum(axis=1) == 2).all()


def with_quality(rows):
    """The pair of views a < b of round r has q = r + a / 10 + b / 100."""
    q = np.array([[r + a / 10 + b / 100 for a, b in PAIRS] for r in range(ROUNDS)], dtype=np.float32)
    return [replace(row, quality=q) for row in rows]


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_the_quality_is_that_of_the_chosen_pair_in_the_epochs_round(filtered, epoch):
    rows = with_quality(samples())
    plan = filtered_pairs(quality=True)(rows, epoch) if filtered else stored(quality=True)(rows, epoch)
    pairs = np.sort(views_of(plan.recipes, epoch % ROUNDS), axis=1)
    expected = epoch % ROUNDS + pairs[:, 0] / 10 + pairs[:, 1] / 100
    np.testing.assert_allclose(plan.quality, expected, atol=1e-6)
    assert plan.counts["missing_quality"] == 0
    plain = filtered_pairs()(rows, epoch) if filtered else stored()(rows, epoch)
    assert plain.quality is None and np.array_equal(plain.recipes, plan.recipes)


def test_rows_of_unknown_quality_are_counted_and_keep_their_place():
    rows = with_quality(samples(6))
    rows[1] = replace(rows[1], quality=None)
    rows[4] = Sample("row4", rows[4].image)
    plan = stored(quality=True)(rows, 0)
    assert np.isnan(plan.quality).tolist() == [False, True, False, False, True, False]
    assert plan.counts == {"missing_pairs": 1, "missing_views": 0, "missing_quality": 2}


def test_quality_and_alpha_exclude_each_other():
    with pytest.raises(ConfigError, match=r"alpha is 0\.5, and weights are by quality"):
        stored(quality=True, alpha=0.5)


def test_a_quality_that_does_not_fit_the_pairs_names_the_row():
    rows = with_quality(samples(2))
    rows[1] = replace(rows[1], quality=rows[1].quality[:, :3])
    with pytest.raises(DataError, match=r"column 'quality': row row1 has shape \(2, 3\), needed \(2, 10\)"):
        stored(quality=True)(rows, 0)
