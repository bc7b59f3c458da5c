import inspect
import shutil
from contextlib import nullcontext
from typing import get_args

import numpy as np
import pytest
import torch
from small_datasets import CPU

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.foreground.stage import ViewsForegroundStage
from viewkit.pipelines.losses.row_weights import quality_weights
from viewkit.pipelines.pairs import load
from viewkit.pipelines.pairs.filter import summary_lines
from viewkit.pipelines.pairs.load import load_pairs, stored_genview
from viewkit.pipelines.pairs.selections import SELECT, Select
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.pipelines.quality.stage import QualityStage
from viewkit.pipelines.score.config import RescoreConfig, ScoreConfig
from viewkit.pipelines.score.rescore import RescoreStage
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.threshold import consistency_threshold
from viewkit.shards.codecs import decode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.row import Row
from viewkit.shards.writer import ShardWriter

OPTIONS = {"policy": "moco_v3_vit", "side_px": 32, "batch_size": 8}


@pytest.fixture(scope="module")
def dataset(chain):
    return chain.dataset


@pytest.mark.parametrize(
    "options", [{}, {"select": "vs2fi"}, {"select": "stored"}, {"alpha": 1.0}, {"alpha": 1.0, "generated": "both"}]
)
def test_ranks_share_the_batches_of_one_process(dataset, options):
    (whole,) = [batch.views1 for batch in load_pairs(dataset, **{**OPTIONS, "batch_size": 24}, **options).epoch(0)]
    parts = [
        load_pairs(dataset, **{**OPTIONS, "batch_size": 12}, rank=rank, world_size=2, **options) for rank in (0, 1)
    ]
    halves = [next(iter(part.epoch(0))).views1 for part in parts]
    assert whole.shape == (24, 3, 32, 32)
    assert [bool((whole[place * 12 : place * 12 + 12] == half).all()) for place, half in enumerate(halves)] == [
        True
    ] * 2


def test_pairs_that_were_scored_on_other_images_are_refused(dataset, tmp_path):
    copy = Dataset(shutil.copytree(dataset.path, tmp_path / "data"))
    images = copy.column("images")
    rows = [Row(row.key, {**row.fields, "json": b"{}"}) for row in images.rows(0)]
    outcomes = [*rows, *(reject for _, reject in images.receipt(0).rejects)]
    (images.path / "000000.json").unlink()
    with ShardWriter(images.path, 0, images.identity.digest) as writer:
        for outcome in outcomes:
            writer.write(outcome)
        writer.finish()
    with pytest.raises(DataError, match="made from another 'images' than the one that is there now"):
        load_pairs(Dataset(copy.path), **OPTIONS, select="vs2fi")


def test_a_missing_column_names_the_command_that_makes_it(dataset, tmp_path):
    shutil.copytree(dataset.path / "images", tmp_path / "data" / "images")
    with pytest.raises(DataError, match="has no column 'pairs'; make it with 'viewkit score"):
        load_pairs(Dataset(tmp_path / "data"), **OPTIONS, select="vs2fi")


@pytest.fixture(scope="module")
def rated(dataset, tmp_path_factory):
    """Two views a round, one of the original and one of the generated image, and the quality of every pair."""
    copy = Dataset(shutil.copytree(dataset.path, tmp_path_factory.mktemp("rated") / "data"))
    for name in ("pairs", "quality", "foreground_views"):
        shutil.rmtree(copy.path / name, ignore_errors=True)
    run_stage(ScoreStage(), ScoreConfig(rounds=2, num_views=2, candidates="mixed"), copy, CPU)
    config = QualityConfig(sign="+", sample=20)
    run_stage(ViewsForegroundStage(), config.foreground(), copy, CPU)
    run_stage(QualityStage(), config, copy, CPU)
    return copy


@pytest.mark.parametrize("select", ["stored", "vs2fi"])
def test_batches_carry_the_quality_of_their_pairs(rated, select):
    """With one pair a round there is no choice: in epoch 1 every row has the quality of round 1."""
    source = load_pairs(rated, **OPTIONS, select=select, weights="quality")
    batches = list(source.epoch(1))
    column = rated.column("quality")
    stored = [decode_npy(column.fields(place)["quality.npy"])[1, 0] for place in range(column.num_rows)]
    found = torch.cat([batch.quality for batch in batches])
    assert found.dtype == torch.float32 and np.isin(found.numpy(), np.float32(stored)).all()
    assert len(found) == 24 and sorted(found.tolist()) == sorted(map(float, stored))
    assert sum(batch.counts["missing_quality"] for batch in batches) == 0
    assert quality_weights(batches[0].quality).sum().item() == pytest.approx(8)
    assert next(load_pairs(rated, **OPTIONS, select=select).epoch(1)).quality is None


def test_rescored_pairs_have_the_quality_of_the_pairs_they_were_made_of(rated):
    run_stage(RescoreStage(), RescoreConfig(gamma=0.1), rated, CPU)
    options = {**OPTIONS, "select": "stored", "weights": "quality"}
    ours, theirs = (next(load_pairs(rated, **options, pairs=name).epoch(0)) for name in ("pairs_rescored", "pairs"))
    assert torch.equal(ours.quality, theirs.quality) and torch.equal(ours.views1, theirs.views1)


def test_a_quality_of_other_pairs_is_refused(rated, dataset, tmp_path):
    """Pairs rescored from others, and pairs that were scored anew under the same name."""
    copy = Dataset(shutil.copytree(rated.path, tmp_path / "data"))
    shutil.move(copy.path / "pairs", tmp_path / "own")
    shutil.copytree(dataset.path / "pairs", copy.path / "pairs")
    run_stage(RescoreStage(column="others"), RescoreConfig(), copy, CPU)
    shutil.rmtree(copy.path / "pairs")
    shutil.copytree(tmp_path / "own", copy.path / "pairs")
    with pytest.raises(DataError, match="it rates other pairs than those in column 'others'; delete"):
        load_pairs(copy, **OPTIONS, select="stored", pairs="others", weights="quality")
    shutil.rmtree(copy.path / "pairs")
    shutil.copytree(dataset.path / "pairs", copy.path / "pairs")
    with pytest.raises(DataError, match="it was made from another 'pairs' than the one that is there now"):
        load_pairs(Dataset(copy.path), **OPTIONS, select="stored", weights="quality")


def test_quality_needs_stored_pairs_and_its_column(dataset, tmp_path):
    with pytest.raises(ConfigError, match="rates stored pairs only; set select to stored"):
        load_pairs(dataset, **OPTIONS, weights="quality")
    copy = Dataset(shutil.copytree(dataset.path, tmp_path / "data"))
    shutil.rmtree(copy.path / "quality", ignore_errors=True)
    with pytest.raises(DataError, match="has no column 'quality'"):
        load_pairs(copy, **OPTIONS, select="stored", weights="quality")


def test_an_unknown_source_is_refused_by_the_names_of_those_that_exist(dataset):
    with pytest.raises(ConfigError, match="select is 'best'; it must be one of random, stored, vs2fi"):
        load_pairs(dataset, **OPTIONS, select="best")
    with pytest.raises(ConfigError, match="generated is 'extra'; in a pair it must be one of one, both"):
        inspect.unwrap(load_pairs)(dataset, **OPTIONS, alpha=1.0, generated="extra")


def test_the_options_of_pretrain_name_every_source():
    assert get_args(Select) == (*SELECT,)
    rules = [each.load_rule() for each in SELECT.values() if each.stored]
    assert len({*rules}) == len(rules) == 7


def test_pairs_of_another_policy_are_refused_unless_asked_for_by_name(dataset):
    options = {**OPTIONS, "policy": "moco_v3", "select": "stored"}
    with pytest.raises(
        RefusedError, match=r"they differ in area \(0.08, 1.0\) against \(0.2, 1.0\); take --policy streng"
    ):
        load_pairs(dataset, **options)
    load_pairs(dataset, **options, other_policy=True)
    load_pairs(dataset, **{**options, "policy": "byol"})  # the same samples, resized otherwise
    load_pairs(dataset, **{**options, "select": "random"})


def test_a_share_gives_the_threshold_of_the_histograms(dataset):
    histograms = Histograms.load(dataset.artifact("histograms"))
    for share in (None, 0.5):
        source = load_pairs(dataset, **OPTIONS, select="vs2fi", filter_share=share)
        assert source.sampler.limits.k_sc == consistency_threshold(histograms, share or 0.08)[0]
        relaxed = sum(batch.counts["relaxed_pairs"] for batch in source.epoch(0))
        column = dataset.column("pairs")
        best = [decode_npy(column.fields(row)["scores.npy"])[0, :, 0].max() for row in range(column.num_rows)]
        assert relaxed == sum(value < source.sampler.limits.k_sc for value in best)
    assert load_pairs(dataset, **OPTIONS, select="vs2fi", k_sc=0.7).sampler.limits.k_sc == 0.7


def test_score_ends_with_what_the_default_filter_will_do_to_the_column_it_wrote(dataset, tmp_path):
    copy = Dataset(shutil.copytree(dataset.path, tmp_path / "data"))
    run_stage(RescoreStage(column="pairs_mine"), RescoreConfig(), copy, CPU)
    shutil.rmtree(copy.path / "pairs")
    assert summary_lines(copy) == []
    assert summary_lines(copy, "pairs_mine")[0].startswith("column 'pairs_mine': k_SC 0.")
    (first, *warnings) = summary_lines(dataset)
    assert first.startswith("column 'pairs': k_SC 0.") and "of the rows have no pair above" in first
    assert all(line.startswith("warning: ") for line in warnings)
    assert summary_lines(Dataset(tmp_path)) == []


@pytest.mark.parametrize(
    ("made_with", "asked", "refused"),
    [
        ("genview", "genview_x", True),
        ("genview_x", "genview", True),
        ("genview_x", "genview_x", False),
        ("genview_x", None, False),
        (None, "genview_x", False),
    ],
)
def test_stored_pairs_of_one_generated_image_take_no_views_of_another(made_with, asked, refused):
    inputs = {"images": "0"} | ({} if made_with is None else {made_with: "1"})
    message = f"column 'pairs': its views are cropped from '{made_with}', .* '{asked}'; set --genview {made_with}"
    with pytest.raises(DataError, match=message) if refused else nullcontext():
        assert stored_genview(inputs, "pairs", asked) == made_with


def test_a_trainer_is_refused_views_of_another_generated_image(dataset, monkeypatch):
    monkeypatch.setattr(load, "generated_column", lambda inputs: "genview")
    for select in ("stored", "vs2fi"):
        with pytest.raises(DataError, match="alpha above 0 asks for views of 'genview_x'"):
            load_pairs(dataset, **OPTIONS, select=select, alpha=0.5, genview="genview_x")
