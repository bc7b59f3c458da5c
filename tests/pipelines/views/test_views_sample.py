import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from viewkit.pipelines.engine.seeds import domain, row_ids
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.policies import POLICIES, load_policy
from viewkit.pipelines.views.policy import IouCeiling, JointSpec
from viewkit.pipelines.views.recipe import BOX, NO_SOLARIZE, check_recipes, column
from viewkit.pipelines.views.sample import sample_recipes, sample_selection
from viewkit.shards.errors import ConfigError, DataError

KEYS = [f"n{number:05d}" for number in range(4000)]
OTHER_PROCESS = """
import hashlib, numpy as np
from dataclasses import replace
from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.views.policies import POLICIES
from viewkit.pipelines.views.policy import JointSpec
from viewkit.pipelines.views.sample import sample_recipes
ids = row_ids([f"n{i:05d}" for i in range(200)])
sizes = np.tile(np.array([[375, 500]]), (200, 1))
sums = hashlib.sha256()
for name in sorted(set(POLICIES) - {"dino_resnet"}):  # newer than the digest
    policy = POLICIES[name].with_joint(JointSpec(beta=-1.0))
    policy = replace(policy, views=tuple(replace(spec, centre=0.6) for spec in policy.views))
    sums.update(sample_recipes(policy, ids, sizes, seed=3, stage="score", round=2).tobytes())
print(sums.hexdigest())
"""
DIGEST = "3a3008da48e2f5de5caf2f1ae8fb00da06140f75a7826346e2eae0227694c511"


def draw(policy, count=4000, size=(375, 500), **options):
    sizes = np.tile(np.array([size]), (count, 1))
    return sample_recipes(policy, row_ids(KEYS[:count]), sizes, seed=0, stage="test", **options)


def suppressed(policy, centre):
    """With Beta(centre, centre) positions in every view."""
    return replace(policy, views=tuple(replace(spec, centre=centre) for spec in policy.views))


def of(recipes, name):
    return recipes[..., column(name)]


def within(share, expected, count):
    return abs(share - expected) < 4.5 * np.sqrt(max(expected * (1 - expected), 1e-9) / count) + 1e-9


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_draws_recipes_in_their_ranges(name):
    recipes = draw(POLICIES[name], 500)
    check_recipes(recipes)
    assert recipes.shape[1] == POLICIES[name].num_views


def test_numbers_are_those_of_numpys_generator():
    recipes = draw(load_policy("moco_v3"), 3, num_views=2, round=5)
    for row in range(3):
        for view in range(2):
            counter = [0, view, 5, domain(0, "test/views")]
            stream = np.random.Generator(np.random.Philox(key=row_ids(KEYS[:3])[row], counter=counter))
            area = 0.2 + 0.8 * stream.random()
            found = of(recipes, "height")[row, view] * of(recipes, "width")[row, view]
            assert found == pytest.approx(area, rel=1e-6)


def test_a_recipe_depends_on_its_own_row_alone():
    policy = suppressed(replace(load_policy("dino"), joint=(JointSpec(),), iou=IouCeiling()), 0.5)
    whole = draw(policy, 60)
    order = np.random.default_rng(0).permutation(60)
    sizes = np.tile(np.array([[375, 500]]), (60, 1))
    ids = row_ids(KEYS[:60])
    again = sample_recipes(policy, ids[order], sizes, seed=0, stage="test")
    assert (again == whole[order]).all()
    parts = [sample_recipes(policy, ids[a : a + 7], sizes[a : a + 7], seed=0, stage="test") for a in range(0, 60, 7)]
    assert (np.concatenate(parts) == whole).all()
    fewer = draw(policy, 60, num_views=4)
    assert (fewer == whole[:, :4]).all()


def test_seed_stage_round_and_view_all_change_the_recipe():
    policy, sizes, ids = load_policy("byol"), np.full((5, 2), 64), row_ids(KEYS[:5])
    options = [{"seed": 0}, {"seed": 1}, {"seed": 0, "round": 1}, {"seed": 0, "stage": "other"}]
    boxes = [sample_recipes(policy, ids, sizes, **({"stage": "a"} | o))[..., BOX] for o in options]
    flat = np.concatenate([box.reshape(-1, 4) for box in boxes])
    assert len(np.unique(flat, axis=0)) == len(flat)


def test_another_process_draws_the_same_bytes_as_ever():
    done = subprocess.run([sys.executable, "-c", OTHER_PROCESS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == DIGEST


def test_coins_fall_as_often_as_the_specification_says():
    recipes = draw(load_policy("byol"))
    count = len(recipes)
    for view, blur, solar in ((0, 1.0, 0.0), (1, 0.1, 0.2)):
        one = recipes[:, view]
        assert within((of(one, "flip") == 1).mean(), 0.5, count)
        assert within((of(one, "brightness") != 1).mean(), 0.8, count)
        assert within((of(one, "grey") > 0).mean(), 0.2, count)
        assert within((of(one, "sigma") > 0).mean(), blur, count)
        assert within((of(one, "solarize") < NO_SOLARIZE).mean(), solar, count)
        assert np.bincount(of(one, "order").astype(int), minlength=24).min() > count / 24 * 0.6


def test_alternate_takes_specifications_in_turn_and_random_samples_them():
    policy = load_policy("moco_v3")
    assert (of(draw(policy, 10, num_views=5), "spec") == [0, 1, 0, 1, 0]).all()
    specs = of(draw(policy, num_views=4, pipelines="random"), "spec")
    assert within(specs.mean(), 0.5, specs.size)


@pytest.mark.parametrize("size", [(375, 500), (200, 600), (500, 500)])
def test_areas_are_uniform_and_ratios_have_their_distribution_on_any_shape(size):
    recipes = draw(load_policy("moco_v2"), size=size)
    area = np.sort((of(recipes, "height") * of(recipes, "width")).ravel().astype(np.float64))
    place = (area - 0.2) / 0.8
    n = len(area)
    assert np.abs(place - (np.arange(n) + 0.5) / n).max() * np.sqrt(n) < 2
    pairs = of(recipes, "height") * of(recipes, "width")
    assert within((pairs.max(axis=1) / pairs.min(axis=1) > 2).mean(), 9 / 32, len(pairs))


@pytest.mark.parametrize("size", [(375, 500), (200, 600)])
def test_joint_crop_keeps_its_distribution_on_any_shape(size):
    pairs = draw(load_policy("moco_v2").with_joint(JointSpec()), size=size)
    area = of(pairs, "height") * of(pairs, "width")
    assert within((area.max(axis=1) / area.min(axis=1) > 2).mean(), 0.56932, len(area))


def test_joint_blur_keeps_each_views_own_coin():
    pairs = draw(load_policy("moco_v2").with_joint(JointSpec(parameter="sigma")))
    sigma = of(pairs, "sigma")
    both = (sigma > 0).all(axis=1)
    assert within(both.mean(), 0.25, len(both))
    ratio = sigma[both].max(axis=1) / sigma[both].min(axis=1)
    assert within((ratio > 2).mean(), 0.76862, both.sum())


def test_joint_colour_draws_both_factors_together():
    for name in ("brightness", "contrast"):
        pairs = draw(load_policy("moco_v2").with_joint(JointSpec(parameter=name)))
        factor = of(pairs, name)
        both = (factor != 1).all(axis=1)
        ratio = factor[both].max(axis=1) / factor[both].min(axis=1)
        assert within((ratio > 2).mean(), 0.18193, both.sum())


def test_a_mix_uses_one_joint_distribution_per_pair():
    specs = (JointSpec(probability=0.5), JointSpec(parameter="sigma", probability=0.5))
    byol = load_policy("byol")
    always = byol.with_joint(*specs)
    independent = draw(byol)
    mixed = draw(always)
    moved_area = (of(mixed, "height") != of(independent, "height")).any(axis=1)
    moved_sigma = (of(mixed, "sigma") != of(independent, "sigma")).any(axis=1)
    assert not (moved_area & moved_sigma).any()
    assert within(moved_area.mean(), 0.5, len(mixed))
    every = draw(byol.with_joint(*specs, mix="all"))
    both = (of(every, "height") != of(independent, "height")).any(axis=1)
    both &= (of(every, "sigma") != of(independent, "sigma")).any(axis=1)
    assert within(both.mean(), 0.25, len(every))


def test_joint_distributions_can_cover_the_global_or_the_local_views():
    dino = load_policy("dino")
    plain = draw(dino, 300)
    for specs, moved in (((0, 1), slice(0, 2)), (tuple(range(2, 10)), slice(2, 10))):
        joint = draw(dino.with_joint(JointSpec(specs=specs)), 300)
        areas = [of(recipes, "height") * of(recipes, "width") for recipes in (joint, plain)]
        changed = (np.abs(areas[0] - areas[1]) > 1e-6).mean(axis=0)
        assert changed[moved].min() > 0.99 and np.delete(changed, np.r_[moved]).max() == 0


def test_centre_suppressed_positions_follow_beta():
    recipes = draw(suppressed(load_policy("moco_v2"), 0.6), size=(400, 400))
    free = 1 - of(recipes, "height")
    position = (of(recipes, "top") / np.maximum(free, 1e-6))[free > 0.05]
    assert abs(position.mean() - 0.5) < 0.02
    assert abs(position.var() - 1 / (4 * (2 * 0.6 + 1))) < 0.004  # variance of Beta(a, a)


def test_crops_are_centred_in_the_foreground():
    boxes = np.tile(np.array([[0.4, 0.1, 0.2, 0.3]]), (300, 1))
    recipes = draw(load_policy("moco_v2"), 300, foreground=boxes)
    centre = of(recipes, "top") + of(recipes, "height") / 2
    half = of(recipes, "height") / 2
    low, high = np.minimum(np.maximum(0.4, half), 1 - half), np.minimum(np.maximum(0.6, half), 1 - half)
    assert (centre >= low - 1e-5).all() and (centre <= high + 1e-5).all()


def test_the_iou_ceiling_holds_and_follows_its_schedule():
    policy = replace(load_policy("moco_v2"), iou=IouCeiling(start=0.3, end=0.6))
    most = []
    for round in range(3):
        boxes = draw(policy, 800, round=round, rounds=3)[..., BOX].astype(np.float64)
        most.append(overlap(boxes[:, 0], boxes[:, 1]).max())
    assert most[0] <= 0.3 + 1e-6 and 0.42 < most[1] <= 0.45 + 1e-6 and 0.57 < most[2] <= 0.6 + 1e-6


def test_an_alternating_ceiling_bounds_every_row_in_every_other_round():
    policy = replace(load_policy("moco_v2"), iou=IouCeiling(start=0.2, end=0.2, alternating=True))
    plain = load_policy("moco_v2")
    for round in range(2):
        bounded = draw(policy, 1000, round=round)[..., BOX].astype(np.float64)
        free = draw(plain, 1000, round=round)[..., BOX].astype(np.float64)
        ours, theirs = overlap(bounded[:, 0], bounded[:, 1]), overlap(free[:, 0], free[:, 1])
        kept = row_ids(KEYS[:1000])[:, 0] % 2 == (1 - round) % 2
        assert (ours[kept] == theirs[kept]).all() and ours[~kept].max() <= 0.2 + 1e-6


def test_an_impossible_ceiling_gives_the_least_overlap_of_all_tries():
    policy = load_policy("moco_v2")
    least = []
    for tries in (1, 4, 32):
        boxes = draw(replace(policy, iou=IouCeiling(start=0.0, end=0.0, tries=tries)), 200)[..., BOX]
        least.append(overlap(boxes[:, 0], boxes[:, 1]).mean())
    assert least[0] > least[1] > least[2]


def test_half_of_the_views_of_chosen_rows_use_the_generated_image():
    recipes = draw(load_policy("moco_v3"), p_generated=0.7)
    source = of(recipes, "source")
    assert within((source.sum(axis=1) == 1).mean(), 0.7, len(source)) and source.sum(axis=1).max() == 1
    assert within(source[:, 0].mean(), 0.35, len(source))
    assert (of(draw(load_policy("moco_v3"), num_views=5, p_generated=1.0), "source").sum(axis=1) == 2).all()


def test_a_generated_image_of_another_shape_keeps_the_area():
    sizes, generated = np.tile([[375, 500]], (500, 1)), np.tile([[512, 128]], (500, 1))
    options = {"seed": 0, "stage": "test", "p_generated": 1.0, "generated_sizes": generated}
    recipes = sample_recipes(load_policy("moco_v2"), row_ids(KEYS[:500]), sizes, **options)
    used = np.where(of(recipes, "source")[..., None] == 1, generated[:, None], sizes[:, None])
    aspect = of(recipes, "width") * used[..., 1] / (of(recipes, "height") * used[..., 0])
    fits = (of(recipes, "height") < 1) & (of(recipes, "width") < 1)
    assert aspect[fits].min() > 0.7499 and aspect[fits].max() < 1.3334


def test_images_of_one_pixel_or_one_line_have_recipes():
    sizes = np.array([[1, 1], [5000, 1], [1, 5000]])
    check_recipes(sample_recipes(load_policy("byol"), row_ids(KEYS[:3]), sizes, seed=0, stage="test"))


def test_impossible_options_are_refused():
    policy = load_policy("byol")
    with pytest.raises(DataError, match=r"row 0: the image is \[0, 5\] px"):
        draw(policy, 2, size=(0, 5))
    with pytest.raises(ConfigError, match="num_views is 0"):
        draw(policy, 2, num_views=0)
    with pytest.raises(ConfigError, match=r"p_generated is 1\.5"):
        draw(policy, 2, p_generated=1.5)
    with pytest.raises(ConfigError, match="round is -1"):
        draw(policy, 2, round=-1)


def test_selection_draws_are_uniform_and_apart_from_the_recipes():
    ids = row_ids(KEYS)
    u = sample_selection(ids, seed=0, stage="test", round=0)
    assert abs(u.mean() - 0.5) < 0.01 and len(np.unique(u)) == u.size
    assert (u == sample_selection(ids, seed=0, stage="test", round=0)).all()
    assert hashlib.sha256(u.tobytes()) != hashlib.sha256(sample_selection(ids, seed=1, stage="test", round=0).tobytes())


def test_a_ratio_of_two_ranges_is_refused_instead_of_staying_independent():
    first, second = load_policy("moco_v2").views
    uneven = replace(load_policy("moco_v2"), views=(first, replace(second, area=(0.4, 1.0)))).with_joint(JointSpec())
    with pytest.raises(ConfigError, match="area is joint, and a pair's views have it in different ranges"):
        draw(uneven, 4)
    swav = load_policy("swav").with_joint(JointSpec(specs=(1, 2)))  # views 1 and 2 are of two pairs
    with pytest.raises(ConfigError, match="the joint distribution of area covers no pair of views"):
        draw(swav, 4)
    with pytest.raises(ConfigError, match="different ranges"):  # any two specifications may meet
        draw(load_policy("swav").with_joint(JointSpec()), 4, pipelines="random")


def resized(count, size, area=(0.2, 1.0), **options):
    """(height, width, top, left) in px of torchvision's rule, [n 2 4]."""
    policy = load_policy("moco_v2")
    policy = replace(policy, crop="torchvision", views=tuple(replace(view, area=area) for view in policy.views))
    boxes = draw(policy, count, size=size, **options)[..., BOX].astype(np.float64)
    return boxes[..., [2, 3, 0, 1]] * np.array([*size, *size])


def test_torchvisions_crops_exceed_a_ratio_of_two_in_23_percent_of_pairs():
    boxes = resized(4000, (375, 500))
    assert np.abs(boxes - np.round(boxes)).max() < 1e-3
    area = boxes[..., 0] * boxes[..., 1]
    ratio = area.max(axis=1) / area.min(axis=1)
    assert within((ratio > 2).mean(), 0.233, 4000)
    exact = draw(load_policy("moco_v2"), 4000)[..., BOX].astype(np.float64)
    area = exact[..., 2] * exact[..., 3]
    assert within((area.max(axis=1) / area.min(axis=1) > 2).mean(), 9 / 32, 4000)


@pytest.mark.parametrize("size", [(375, 500), (200, 600), (64, 64), (90, 30)])
def test_torchvisions_crops_have_its_own_distribution(size):
    from torchvision.transforms.v2 import RandomResizedCrop

    image = torch.zeros(3, *size)
    transform = RandomResizedCrop(32, scale=(0.2, 1.0), antialias=True)
    torch.manual_seed(0)
    get = [transform.make_params([image]) for _ in range(8000)]
    theirs = np.array([[each[name] for name in ("height", "width", "top", "left")] for each in get], dtype=np.float64)
    ours = np.round(resized(4000, size)).reshape(-1, 4)
    assert (ours[:, 2] + ours[:, 0] <= size[0]).all() and (ours[:, 3] + ours[:, 1] <= size[1]).all()
    for values in (lambda box: box[:, 0], lambda box: box[:, 1], lambda box: box[:, 2], lambda box: box[:, 3],
                   lambda box: box[:, 0] * box[:, 1], lambda box: box[:, 3] + 2 * box[:, 1]):  # fmt: skip
        a, b = np.sort(values(theirs)), np.sort(values(ours))
        merged = np.concatenate([a, b])
        distance = np.abs(np.searchsorted(a, merged, "right") - np.searchsorted(b, merged, "right")).max() / 8000
        assert distance * np.sqrt(8000 / 2) < 2.2  # above it with probability 0.0001


def test_where_nothing_fits_torchvision_takes_the_central_part():
    boxes = np.round(resized(200, (40, 400), area=(1.0, 1.0))).reshape(-1, 4)  # an area of 1 fits at no allowed aspect
    assert (boxes == [40, 53, 0, 173]).all()


def test_one_row_alone_has_the_same_torchvision_crops():
    policy, sizes, ids = replace(load_policy("byol"), crop="torchvision"), np.full((6, 2), 64), row_ids(KEYS[:6])
    together = sample_recipes(policy, ids, sizes, seed=0, stage="test")
    alone = np.concatenate([sample_recipes(policy, ids[[at]], sizes[:1], seed=0, stage="test") for at in range(6)])
    assert np.array_equal(together, alone)
