import numpy as np
import pytest
import torch

from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.pairs.column import read_pairs
from viewkit.pipelines.report.pairs import make_galleries, pick_pairs, render_views
from viewkit.pipelines.views.recipe import neutral_recipes
from viewkit.pipelines.views.render.render import render
from viewkit.shards.codecs import decode_image
from viewkit.shards.errors import DataError

ALL = np.ones((3, 1, 2), dtype=bool)


def test_the_lowest_and_highest_values_are_picked_one_pair_a_row():
    values = np.array([[[0.5, 0.1]], [[0.2, 0.9]], [[0.3, 0.3]]], np.float32)
    assert pick_pairs(values, ALL, 2, highest=False) == [(0, 0, 1), (1, 0, 0)]
    assert pick_pairs(values, ALL, 5, highest=True) == [(1, 0, 1), (0, 0, 0), (2, 0, 0)]


def test_pairs_that_are_not_allowed_are_never_picked():
    values = np.zeros((3, 1, 2), np.float32)
    allowed = ~ALL
    allowed[1, 0, 1] = True
    assert pick_pairs(values, allowed, 3, highest=False) == [(1, 0, 1)]


@pytest.fixture(scope="module")
def galleries(everything):
    sample = read_pairs(everything.column("pairs"), 100)
    images, genview = everything.column("images"), everything.column("genview")
    return {gallery.title: gallery for gallery in make_galleries(sample, images, genview, count=2, side_px=32)}


def test_the_galleries_hold_the_ends_of_both_indicators(galleries):
    assert [pair.key for pair in galleries["Low Semantic Consistency"].examples] == ["row00", "row01"]
    assert [pair.key for pair in galleries["High Semantic Consistency"].examples] == ["row23", "row22"]
    assert {pair.level for pair in galleries["Low Alignment Level"].examples} == {1}
    assert {pair.level for pair in galleries["High Alignment Level"].examples} == {5}


def test_a_pair_shows_both_images_it_was_cut_from_and_where(galleries):
    pair = galleries["Low Semantic Consistency"].examples[0]
    assert [source.is_generated for source in pair.sources] == [False, True]
    outlines = [outline for source in pair.sources for outline in source.outlines]
    assert [(o.index, o.top, o.left, o.height, o.width) for o in outlines] == [
        (0, 25.0, 0.0, 50.0, 100.0), (1, 25.0, 0.0, 50.0, 100.0),
    ]  # fmt: skip
    assert (pair.views[0].height, pair.views[0].width) == (32, 32)


def test_the_sample_is_the_rows_with_the_smallest_hashes(everything):
    pairs = everything.column("pairs")
    assert read_pairs(pairs, 5).keys == smallest(pairs.keys(), 5)


def test_rows_of_other_shapes_are_said_to_be_damaged(images_only, build, monkeypatch):
    whole = build.scores_of
    monkeypatch.setattr(build, "scores_of", lambda k: whole(k)[: 1 + k % 2])
    build.make_pairs(images_only)
    with pytest.raises(DataError, match="delete the column and rerun 'viewkit score'"):
        read_pairs(images_only.column("pairs"), 100)


def test_galleries_of_alignment_level_follow_the_k_sc_that_they_are_given(everything):
    sample, images = read_pairs(everything.column("pairs"), 100), everything.column("images")
    low, high = make_galleries(sample, images, everything.column("genview"), count=30, side_px=32, k_sc=0.25)[2:]
    assert "0.250, the trainer's k_SC by default" in low.about and "0.250" in high.about
    above = {pair.key for pair in high.examples if pair.consistency >= 0.25}
    assert above == {f"row{k:02d}" for k in range(10, 24)}  # 10 / 40 and more; others show their best pair
    (only,) = {pair.consistency for pair in low.examples if pair.key == "row05"}
    assert only == pytest.approx(5.2 / 40)


def test_views_are_resized_as_the_policy_says(everything):
    images = everything.column("images")
    image = torch.from_numpy(decode_image(images.fields(0)))
    recipes = neutral_recipes(1, 20)
    for interpolation in ("bilinear", "bicubic"):
        (shown,) = render_views([image.numpy()], recipes, 20, interpolation)
        wanted = render(
            [image], recipes, np.zeros(1, int), side_px=20, mean=(0, 0, 0), std=(1, 1, 1), interpolation=interpolation
        )
        np.testing.assert_array_equal(shown, (wanted[0].clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy())
    assert (shown != render_views([image.numpy()], recipes, 20)[0]).any()
