import numpy as np
import pytest
import torch

from viewkit.pipelines.estimator.config import EstimatorConfig, resolve
from viewkit.pipelines.estimator.stage import EstimatorStage
from viewkit.pipelines.pairs.overlapping import OverlappingPairs
from viewkit.pipelines.pairs.random import RandomViews
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.select import pair_overlaps
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import BOX
from viewkit.shards.errors import ConfigError


def samples(n: int) -> list[Sample]:
    image = torch.zeros(128, 128, 3, dtype=torch.uint8)
    return [Sample(f"row{k}", image, None) for k in range(n)]


def candidates(num_views: int) -> RandomViews:
    return RandomViews(load_policy("mosaic"), seed=0, stage="t", num_views=num_views)


def test_pairs_share_area_wherever_two_of_the_views_do_and_are_views_of_the_row():
    rows, random = samples(400), candidates(5)
    views = random(rows, 3).recipes
    plan = OverlappingPairs(random)(rows, 3)
    overlaps = pair_overlaps(views[:, :, BOX].astype(float)).max(axis=1) > 1e-6
    chosen = pair_overlaps(plan.recipes[:, :, BOX].astype(float))[:, 0] > 1e-6
    assert (chosen == overlaps).all() and 0.8 < chosen.mean() < 1
    assert plan.counts["relaxed_pairs"] == (~overlaps).sum()
    among = (plan.recipes[:, :, None] == views[:, None]).all(axis=-1)  # n 2 5
    assert (among.sum(axis=2) == 1).all() and not among.all(axis=1).any()


def test_every_overlapping_pair_is_equally_likely_and_so_is_either_order():
    rows, random = samples(1500), candidates(4)
    views, pairs = random(rows, 0).recipes, OverlappingPairs(random)(rows, 0).recipes
    first, second = (pairs[:, :, None] == views[:, None]).all(axis=-1).argmax(axis=2).T
    taken = np.zeros((4, 4))
    np.add.at(taken, (first, second), 1)
    expected = len(rows) / 12
    assert abs(taken[~np.eye(4, dtype=bool)] - expected).max() < 5 * np.sqrt(expected)


def test_the_estimator_learns_from_them_and_its_identity_says_so_only_then():
    stage, plain = EstimatorStage(), EstimatorConfig(preset="pico-32")
    assert "pairs" not in stage.settings(plain)
    assert stage.settings(EstimatorConfig(preset="pico-32", pairs="overlap"))["pairs"] == "overlap"
    with pytest.raises(ConfigError, match="pairs is 'overlap' and trunk is 'runs/a', whose views are random"):
        resolve(EstimatorConfig(pairs="overlap", trunk="runs/a"))
