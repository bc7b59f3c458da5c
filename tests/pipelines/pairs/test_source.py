import numpy as np
import pytest
import torch
from vs2fi_world import make_genview, make_images

from viewkit.pipelines.pairs.random import RandomPairs, RandomViews
from viewkit.pipelines.pairs.samples import Sample, SampleReader
from viewkit.pipelines.pairs.scene import scene_of
from viewkit.pipelines.pairs.source import PairSource
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import SOURCE, centre_squares, column
from viewkit.pipelines.views.render.render import render
from viewkit.shards.codecs import encode_png
from viewkit.shards.loader import Loader
from viewkit.shards.row import Row
from viewkit.shards.view_fields import fields_of_views

POLICY = load_policy("moco_v3").with_side(32)
MISSING = ("row0003", "row0011")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    dataset = make_images(tmp_path_factory.mktemp("pairs") / "d")
    make_genview(dataset, missing=MISSING)
    return dataset


def samples_of(dataset, columns=("images", "genview"), batch_size=40):
    loader = Loader(dataset, columns, batch_size=batch_size, seed=0, transform=SampleReader())
    return loader, next(loader.epoch(0))


def test_an_epoch_started_in_the_middle_gives_the_same_views(dataset):
    loader, _ = samples_of(dataset, ("images",), batch_size=8)
    source = PairSource(loader, RandomPairs(POLICY, seed=0, stage="pretrain"), POLICY, "cpu")
    whole, rest = list(source.epoch(2)), list(source.epoch(2, 3))
    assert len(whole) == 5 and len(rest) == 2
    for ours, theirs in zip(whole[3:], rest, strict=True):
        assert torch.equal(ours.views1, theirs.views1) and torch.equal(ours.views2, theirs.views2)
    assert not torch.equal(whole[0].views1, next(source.epoch(3)).views1)


def test_view_one_follows_the_first_specification_and_view_two_the_second(dataset):
    _, samples = samples_of(dataset)
    recipes = RandomPairs(POLICY, seed=0, stage="pretrain")(samples, 0).recipes
    assert (recipes[:, 0, column("spec")] == 0).all() and (recipes[:, 1, column("spec")] == 1).all()


def test_a_rows_pair_does_not_depend_on_its_neighbours(dataset):
    _, samples = samples_of(dataset)
    sampler = RandomPairs(POLICY, seed=0, stage="pretrain", alpha=0.5)
    together = sampler(samples, 4).recipes
    for row in (0, 17):
        assert np.array_equal(sampler(samples[row : row + 1], 4).recipes[0], together[row])


def test_alpha_is_the_share_of_rows_with_exactly_one_generated_view(dataset):
    _, samples = samples_of(dataset)
    sampler = RandomPairs(POLICY, seed=0, stage="pretrain", alpha=0.6)
    sources = np.concatenate([sampler(samples, epoch).recipes[:, :, SOURCE] for epoch in range(60)])
    assert set(sources.sum(axis=1)) == {0, 1}
    present = 38 / 40
    assert sources.sum(axis=1).mean() == pytest.approx(0.6 * present, abs=0.03)
    assert sources[:, 0].mean() == pytest.approx(sources[:, 1].mean(), abs=0.05)


def test_both_views_come_from_the_generated_image_in_the_rows_that_have_one_otherwise(dataset):
    _, samples = samples_of(dataset)
    options = {"seed": 0, "stage": "pretrain", "alpha": 0.6}
    one = RandomPairs(POLICY, **options)(samples, 3).recipes
    both = RandomPairs(POLICY, **options, generated="both")(samples, 3)
    drawn = one[:, :, SOURCE].any(axis=1)
    lacking = np.array([sample.key in MISSING for sample in samples])
    assert np.array_equal(both.recipes[:, :, SOURCE].sum(axis=1), 2 * drawn)
    assert np.array_equal(both.recipes[~drawn & ~lacking], one[~drawn & ~lacking])
    assert drawn.any() and not drawn.all() and both.counts["missing_views"] in (0, 2, 4)
    every = RandomPairs(POLICY, **{**options, "alpha": 1.0}, generated="both")(samples, 3)
    assert every.counts == {"missing_views": 2 * len(MISSING)}


def test_both_views_of_the_generated_image_are_those_a_plain_pair_of_it_has(dataset):
    _, samples = samples_of(dataset)
    options = {"seed": 0, "stage": "pretrain"}
    both = RandomPairs(POLICY, **options, alpha=1.0, generated="both")(samples, 3).recipes
    swapped = [Sample(s.key, s.image if s.generated is None else s.generated) for s in samples]
    plain = RandomPairs(POLICY, **options)(swapped, 3).recipes
    plain[:, :, SOURCE] = both[:, :, SOURCE]
    assert np.array_equal(both, plain)


def test_one_more_positive_leaves_the_pair_as_it_is(dataset):
    _, samples = samples_of(dataset)
    options = {"seed": 0, "stage": "pretrain"}
    pair = RandomPairs(POLICY, **options)(samples, 3).recipes
    drawn = RandomPairs(POLICY, **options, alpha=0.6)(samples, 3).recipes[:, :, SOURCE].any(axis=1)
    plan = RandomViews(POLICY, **options, num_views=3, alpha=0.6, generated="extra")(samples, 3)
    assert np.array_equal(plan.recipes[:, :2], pair)
    lacking = np.array([sample.key in MISSING for sample in samples])
    assert set(plan.recipes[lacking, 2, SOURCE]) == {0}
    share = np.mean([
        RandomViews(POLICY, **options, num_views=3, alpha=0.6, generated="extra")(samples, epoch).recipes[:, 2, SOURCE]
        for epoch in range(60)
    ])  # fmt: skip
    assert share == pytest.approx(0.6 * 38 / 40, abs=0.03) and drawn.any()
    every = RandomViews(POLICY, **options, num_views=3, alpha=1.0, generated="extra")(samples, 3)
    assert every.counts == {"missing_views": len(MISSING)}
    swapped = [Sample(s.key, s.image if s.generated is None else s.generated) for s in samples]
    third = RandomViews(POLICY, **options, num_views=3)(swapped, 3).recipes[:, 2]
    third[:, SOURCE] = every.recipes[:, 2, SOURCE]
    assert np.array_equal(every.recipes[:, 2], third)
    assert not RandomViews(POLICY, **options, num_views=3, generated="extra")(samples, 3).recipes[:, :, SOURCE].any()


def test_rows_without_a_generated_image_use_the_original_and_are_counted(dataset):
    _, samples = samples_of(dataset)
    plan = RandomPairs(POLICY, seed=0, stage="pretrain", alpha=1.0)(samples, 0)
    lacking = np.array([sample.key in MISSING for sample in samples])
    assert (plan.recipes[:, :, SOURCE].sum(axis=1) == ~lacking).all()
    assert plan.counts == {"missing_views": 2}


def test_generated_views_are_cropped_from_the_generated_image(dataset):
    loader, samples = samples_of(dataset)
    source = PairSource(loader, RandomPairs(POLICY, seed=0, stage="x", alpha=1.0), POLICY, "cpu")
    plan = source.sampler(samples, 0)
    views = torch.stack(scene_of(samples, plan.recipes, POLICY, "cpu").render(), dim=1)
    for row in (0, 1, 2):
        for view in (0, 1):
            image = samples[row].generated if plan.recipes[row, view, SOURCE] else samples[row].image
            alone = render([image], plan.recipes[row, view][None], [0], side_px=32, mean=POLICY.mean, std=POLICY.std)
            assert torch.equal(alone[0], views[row, view])


def test_images_are_decoded_once_while_they_fit(dataset):
    row = dataset.column("images").row(0)
    reader = SampleReader()
    assert reader(row).image is reader(row).image
    small = SampleReader(cache_bytes=10)
    first, second = small(row).image, small(row).image
    assert first is not second and torch.equal(first, second)


def test_centre_squares_are_the_largest_centred_ones():
    image = torch.arange(6 * 4 * 3, dtype=torch.uint8).reshape(6, 4, 3)
    recipes = centre_squares([image], 4)
    view = render([image], recipes, [0], side_px=4, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    torch.testing.assert_close(view[0], image[1:5].permute(2, 0, 1).float() / 255)


def test_several_generated_views_of_an_image_are_taken_in_turn():
    pictures = [encode_png(np.full((4, 4, 3), value, np.uint8)) for value in (10, 20, 30)]
    genview = {**fields_of_views([{"png": content} for content in pictures]), "json": b"{}"}
    reader = SampleReader()
    rows = [Row(f"k{n}", {"png": pictures[0]}, {"genview": genview}) for n in range(20)]
    turns = [[int(reader(row, epoch).generated[0, 0, 0]) for epoch in range(6)] for row in rows]
    assert all(sorted(turn[:3]) == [10, 20, 30] and turn[3:] == turn[:3] for turn in turns)
    assert {turn[0] for turn in turns} == {10, 20, 30}
    assert {int(reader(row).generated[0, 0, 0]) for row in rows} == {10}
