"""Weights by quality of pairs that are sampled anew each epoch (GenView, eq. 10 to 14)."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import reference_quality as reference
from vs2fi_world import make_estimator, make_genview, make_images

from viewkit.pipelines.draw.config import DrawConfig
from viewkit.pipelines.draw.stage import DrawStage
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.foreground.stage import ViewsForegroundStage
from viewkit.pipelines.losses.row_weights import quality_weights
from viewkit.pipelines.pairs.load import load_pairs
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.pairs import create_selector, create_source
from viewkit.pipelines.pretrain.quality import compared_pairs, open_rater
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.pipelines.quality.stage import QualityStage
from viewkit.pipelines.views.recipe import SOURCE
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, MissingError

CPU = Execution(device="cpu", workers=1)
RATED = QualityConfig(sign="+", sample=12)
CONFIG = PretrainConfig(
    arch="vit_pico_patch8", policy="genview_vit", optimiser="sgd", lr=0.05, steps=3, warmup_epochs=0.0, batch_size=8,
    hidden=32, dim=16, alpha=0.5, weights="quality",
)  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    made = make_images(tmp_path_factory.mktemp("fresh") / "d", count=24, shard_rows=10)
    make_genview(made, missing=("row0003", "row0011"))
    make_estimator(made)
    run_stage(DrawStage(), DrawConfig(rounds=2, policy="genview_vit", side_px=32), made, CPU)
    run_stage(ViewsForegroundStage(), RATED.foreground(), made, CPU)
    return made


@pytest.fixture(scope="module")
def rated(dataset, tmp_path_factory):
    copy = Dataset(shutil.copytree(dataset.path, tmp_path_factory.mktemp("rated") / "d"))
    run_stage(QualityStage(), RATED, copy, CPU)
    return copy


def weigher(dataset, config=CONFIG):
    run = Run(dataset, dataset.path / "runs" / "none", "pretrain")
    return create_source(resolve(config), run), create_selector(resolve(config), run)


@pytest.mark.parametrize("epoch", [0, 1])
def test_the_quality_of_stored_recipes_is_bit_equal_to_the_stored_one(rated, epoch):
    rater = open_rater(rated, "cpu")
    options = {"policy": "genview_vit", "side_px": 32, "batch_size": 8, "select": "stored", "weights": "quality"}
    for batch in load_pairs(rated, **options).epoch(epoch):
        assert np.array_equal(rater.rate(batch.scene)[:, 0], batch.quality.numpy())


def test_the_weights_are_those_of_the_papers_loops(dataset):
    source, weigh = weigher(dataset)
    batch = next(source.epoch(0))
    encoder, direction = weigh.rater.encoder, weigh.rater.foreground.direction.tolist()
    maps = [
        encoder.maps(encoder.render(batch.scene.images, batch.scene.recipes[:, j], batch.scene.image_index[:, j]))
        for j in (0, 1)
    ]
    expected = [reference.quality(one.tolist(), other.tolist(), direction) for one, other in zip(*maps, strict=True)]
    q = weigh.quality_of(batch)
    np.testing.assert_allclose(q, expected, atol=1e-5)
    weights = quality_weights(q)
    assert float(weights.sum()) == pytest.approx(8, abs=1e-5) and not weights.requires_grad


def test_alpha_below_1_mixes_rows_of_both_kinds_and_all_have_a_quality(dataset):
    source, weigh = weigher(dataset)
    kinds = set()
    for batch in source.epoch(0):
        kinds |= set(batch.scene.recipes[..., SOURCE].sum(axis=1).tolist())
        assert bool(weigh.quality_of(batch).isfinite().all())
    assert kinds == {0, 1}


def test_the_pairs_that_count_are_those_that_the_loss_compares():
    assert compared_pairs(None)(2).tolist() == [[0, 1]]
    assert compared_pairs(None)(4).tolist() == [[0, 2], [0, 3], [1, 2], [1, 3]]
    assert compared_pairs(2)(4).tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3]]


def test_of_several_views_the_mean_quality_of_the_compared_pairs_counts(dataset):
    source, weigh = weigher(dataset, replace(CONFIG, views_per_side=2))
    batch = next(source.epoch(0))
    of_pairs = weigh.rater.rate(batch.scene)
    compared = [pair_index(4).tolist().index(pair) for pair in ([0, 2], [0, 3], [1, 2], [1, 3])]
    np.testing.assert_allclose(weigh.quality_of(batch), of_pairs[:, compared].mean(axis=1), atol=1e-6)


SWAV = PretrainConfig(
    framework="swav", arch="resnet10_narrow", side_px=32, policy="swav", optimiser="sgd", lr=0.05, steps=2,
    warmup_epochs=0.0, batch_size=8, hidden=32, dim=16, prototypes=8, prototype_freeze_steps=0, alpha=1.0,
    weights="quality",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, framework="simsiam", arch="resnet10_narrow"), SWAV])
def test_any_framework_with_a_loss_per_row_is_trained_with_weights(dataset, config):
    name = config.framework
    summary = run_stage(PretrainStage(name), config, dataset, CPU)
    plain = replace(config, weights="none")
    unweighted = run_stage(PretrainStage(f"{name}_plain"), plain, dataset, CPU)
    assert summary.numbers["steps"] == config.steps
    assert summary.numbers["loss"] != unweighted.numbers["loss"]
    assert summary.numbers["missing_views"] == unweighted.numbers["missing_views"]


def test_what_rates_them_is_part_of_the_runs_identity(dataset):
    inputs = PretrainStage("a").inputs(CONFIG, dataset)
    assert {"images", "genview", "foreground_views", "estimator", "policy"} == set(inputs)


def test_without_a_component_the_way_to_it_is_named(tmp_path):
    bare = make_images(tmp_path / "d", count=10)
    make_genview(bare)
    with pytest.raises(MissingError, match="foreground_views"):
        run_stage(PretrainStage("a"), CONFIG, bare, CPU)


def test_a_file_of_weights_that_nothing_reads_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="it needs --weights quality and views sampled anew"):
        PretrainStage("a", tmp_path / "w.safetensors").check(replace(CONFIG, weights="none"))
