from math import comb

import numpy as np
import pytest
import reference_hvs as reference
import torch

from viewkit.pipelines.frameworks.table import create_framework
from viewkit.pipelines.hard_views.combinations import combination_at, count_combinations, sample_ranks
from viewkit.pipelines.hard_views.crops import HardCrops, losses_of_combinations, with_candidates
from viewkit.pipelines.hard_views.log import ViewLog, read_view_log
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.pairs.random import RandomViews
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.scene import scene_of
from viewkit.pipelines.pairs.source import ViewBatch
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import column

CPU = Stepper.make("cpu")
POLICY = with_candidates(load_policy("dino").with_side(16), num_large=4, num_small=3, large_specs=2)


def candidates(count=2):
    rng = np.random.default_rng(5)
    rows = [
        Sample(f"row{i}", torch.from_numpy(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8))) for i in range(count)
    ]
    choice = RandomViews(POLICY, seed=0, stage="hvs", num_views=7)(rows, 0)
    scene = scene_of(rows, choice.recipes, POLICY, "cpu", choice.sides_px)
    return ViewBatch(scene.render(), None, {}, wait_s=0.0, render_s=0.0, scene=scene)


def dino():
    config = PretrainConfig(
        framework="dino", arch="resnet10_narrow", batch_size=4, hidden=16, bottleneck=8, dim=24, teacher_tau=0.1
    )
    return create_framework(create_backbone(config.arch, 16, seed=1), resolve(config), steps=10).train()


def test_the_chosen_crops_have_the_worst_loss_that_training_could_have(tmp_path):
    network, batch = dino(), candidates()
    network.centre.copy_(torch.linspace(-0.1, 0.1, 24))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    selector = HardCrops(num_large=4, num_chosen=2, comparisons=100, seed=0, stage="x", log=ViewLog(tmp_path, 1))
    picked = selector(network, batch, CPU)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert network.fresh_centre is None
    combinations = reference.crop_combinations(4, 3, 2)
    assert len(combinations) == 12 and selector.sample(0, 3) == combinations
    for row in range(2):
        losses = [
            reference.loss_of_row(network, [batch.views[j] for j in (a, b, *small)], row)
            for a, b, small in combinations
        ]
        a, b, small = combinations[reference.worst(losses)]
        for place, view in enumerate((a, b, *small)):
            assert torch.equal(picked.views[place][row], batch.views[view][row])
    assert [view.shape[-1] for view in picked.views] == [16, 16, 7, 7]
    log = read_view_log(tmp_path)
    assert log["views"].shape == (2, 4) and log["losses"].shape == (2, 4, 7) and "iou" not in log


def test_losses_of_combinations_are_means_over_different_views():
    crops = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(0))
    combinations = reference.crop_combinations(4, 3, 2)
    found = losses_of_combinations(crops, combinations)
    for k, (a, b, small) in enumerate(combinations):
        for row in range(2):
            pairs = [(t, s) for t in (a, b) for s in (a, b, *small) if t != s]
            expected = sum(crops[row, t, s].item() for t, s in pairs) / len(pairs)
            assert found[row, k].item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    nothing = losses_of_combinations(crops[:, :, :4], reference.crop_combinations(4, 0, 0))
    assert nothing[0, 0].item() == pytest.approx((crops[0, 0, 1] + crops[0, 1, 0]).item() / 2)


@pytest.mark.parametrize(("sizes", "count"), [((4, 6, 2), 60), ((4, 16, 10), 32_032), ((2, 8, 8), 1)])
def test_every_combination_is_reachable_once_and_in_order(sizes, count):
    assert count_combinations(*sizes) == count
    if count < 1000:
        assert [combination_at(rank, *sizes) for rank in range(count)] == reference.crop_combinations(*sizes)
    else:
        found = {combination_at(rank, *sizes) for rank in range(count)}
        assert len(found) == count and all(len(set(small)) == 10 for _, _, small in found)


def test_comparisons_are_drawn_without_replacement_and_reach_everything():
    generator = np.random.default_rng(0)
    counts = np.zeros(60)
    for _ in range(600):
        ranks = sample_ranks(generator, 60, 16)
        assert len(set(ranks.tolist())) == 16 and (np.diff(ranks) > 0).all()
        counts[ranks] += 1
    assert counts.min() > 0 and counts.mean() == 160 and np.abs(counts - 160).max() < 5 * 10.9  # 5 standard deviations
    assert sample_ranks(generator, 60, 60).tolist() == list(range(60))
    far = sample_ranks(generator, comb(48, 24) * 1024, 128)
    assert len(set(far.tolist())) == 128 and far.max() > comb(48, 24) * 512


def test_a_steps_comparisons_depend_on_seed_and_step_alone():
    selector = HardCrops(num_large=4, num_chosen=4, comparisons=16, seed=3, stage="pretrain")
    assert selector.sample(7, 8) == selector.sample(7, 8) != selector.sample(8, 8)
    other = HardCrops(num_large=4, num_chosen=4, comparisons=16, seed=4, stage="pretrain")
    assert other.sample(7, 8) != selector.sample(7, 8)
    assert selector.sample(7, 8) == sorted(selector.sample(7, 8))


def test_candidates_follow_the_specifications_of_the_views_they_stand_for():
    policy = load_policy("dino")
    more = with_candidates(policy, num_large=4, num_small=16, large_specs=2)
    assert more.views[:4] == policy.views[:2] * 2 and set(more.views[4:]) == set(policy.views[2:])
    assert [more.side_of(spec) for spec in (0, 3, 4, 19)] == [224, 224, 96, 96]


def test_large_views_alternate_between_the_two_specifications():
    scene = candidates().scene
    assert scene.recipes[0, :, column("spec")].tolist() == list(range(7))
    assert scene.sides_px == (16, 16, 16, 16, 7, 7, 7)
