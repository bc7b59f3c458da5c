"""Stage `draw`: GenView's pairs without an estimator."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from vs2fi_world import make_estimator, make_genview, make_images

from viewkit.pipelines.draw.config import DrawConfig
from viewkit.pipelines.draw.stage import DrawStage
from viewkit.pipelines.encoders.stored_views import stored_recipes
from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.foreground.stage import ViewsForegroundStage
from viewkit.pipelines.pairs.load import load_pairs
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.pipelines.quality.stage import QualityStage
from viewkit.pipelines.score.config import RescoreConfig, ScoreConfig
from viewkit.pipelines.score.rescore import RescoreStage
from viewkit.pipelines.score.stage import ScoreStage, decode_row
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import NUM_FIELDS, SOURCE, column
from viewkit.pipelines.views.sample import sample_recipes
from viewkit.shards.codecs import decode_image, decode_npy, encode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, MissingError

ON_CPU = Execution(device="cpu", workers=1)
CONFIG = DrawConfig(rounds=3, policy="genview_vit", side_px=32)
MISSING = ("row0002", "row0009")
STORED = {"policy": "genview_vit", "side_px": 32, "batch_size": 8, "select": "stored"}


class Lines(Silent):
    def __init__(self):
        self.lines = []

    def message(self, text):
        self.lines.append(text)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    made = make_images(tmp_path_factory.mktemp("draw") / "d", count=24, shard_rows=10)
    make_genview(made, missing=MISSING)
    run_stage(DrawStage(), CONFIG, made, ON_CPU)
    return made


def recipes_of(dataset, name="pairs"):
    found = dataset.column(name)
    return {key: decode_npy(found.fields(i)["recipes.npy"]) for i, key in enumerate(found.keys())}


def test_view_j_follows_specification_j_in_every_round(dataset):
    for recipes in recipes_of(dataset).values():
        assert recipes.shape == (3, 2, NUM_FIELDS) and recipes.dtype == np.float32
        assert (recipes[..., column("spec")] == [0, 1]).all()
        assert (recipes[..., column("side")] == 32).all()


def test_an_original_view_is_the_one_that_the_trainer_would_sample(dataset):
    """The same numbers as of (seed, stage, key, round, view), for a plain pair of the policy's T and T'."""
    images = dataset.column("images")
    keys = list(images.keys())[:5]
    sizes = np.array([decode_image(images.fields(images.place_of[key])).shape[:2] for key in keys])
    policy = load_policy(CONFIG.policy).with_side(32)
    for round in range(3):
        expected = sample_recipes(policy, row_ids(keys), sizes, seed=0, stage="draw", round=round, rounds=3)
        for key, pair in zip(keys, expected, strict=True):
            assert np.array_equal(recipes_of(dataset)[key][round, 0], pair[0])


def test_mixed_pairs_have_one_generated_view_and_either_has_any_one(dataset):
    for key, recipes in recipes_of(dataset).items():
        assert recipes[..., SOURCE].tolist() == [[0, 0 if key in MISSING else 1]] * 3
    run_stage(DrawStage("pairs_either"), replace(CONFIG, candidates="either", rounds=40), dataset, ON_CPU)
    for key, recipes in recipes_of(dataset, "pairs_either").items():
        assert (recipes[..., SOURCE].sum(axis=1) == (0 if key in MISSING else 1)).all()
    shares = [each[:, 0, SOURCE].mean() for key, each in recipes_of(dataset, "pairs_either").items()]
    assert 0.3 < np.mean(shares) < 0.6


def test_images_without_a_generated_view_are_named_and_counted(dataset):
    lines = Lines()
    run_stage(DrawStage("pairs_said"), replace(CONFIG, rounds=1), dataset, ON_CPU, lines)
    assert lines.lines == ["draw: 2 of 24 images have no view in 'genview'; theirs are cropped from originals"]
    batches = list(load_pairs(dataset, **STORED).epoch(0))
    assert sum(batch.counts["missing_views"] for batch in batches) == len(MISSING)
    assert sum(batch.counts["missing_pairs"] for batch in batches) == 0


def test_epochs_follow_the_rounds(dataset):
    """In epoch e the pair of round e, in either order: the same pixels as from the recipes themselves."""
    source = load_pairs(dataset, **STORED)
    drawn = recipes_of(dataset)
    for epoch in (0, 2):
        batch = next(source.epoch(epoch))
        rows = {tuple(sorted(pair.tobytes() for pair in recipes[epoch])) for recipes in drawn.values()}
        assert {tuple(sorted(pair.tobytes() for pair in row)) for row in batch.scene.recipes} <= rows


def test_drawn_pairs_are_rated_by_quality(dataset):
    make_estimator(dataset)
    config = QualityConfig(sign="+", sample=12)
    run_stage(ViewsForegroundStage(), config.foreground(), dataset, ON_CPU)
    run_stage(QualityStage(), config, dataset, ON_CPU)
    batch = next(load_pairs(dataset, **STORED, weights="quality").epoch(1))
    assert batch.counts["missing_quality"] == 0 and batch.quality.std() > 0


def test_drawn_pairs_have_no_indicators_and_say_so(dataset):
    with pytest.raises(DataError, match="'pairs' was written by 'viewkit draw' and has no scores"):
        load_pairs(dataset, **{**STORED, "select": "vs2fi"})
    with pytest.raises(DataError, match="'pairs' was written by 'viewkit draw' and has no scores"):
        run_stage(RescoreStage(), RescoreConfig(), dataset, ON_CPU)


def test_advice_for_drawn_pairs_names_the_column_and_the_command_that_drew_them(dataset, tmp_path):
    pairs = dataset.column("pairs")
    one_view = encode_npy(decode_npy(pairs.fields(0)["recipes.npy"])[:, :1])
    for fields in ({}, {"recipes.npy": one_view}):
        with pytest.raises(DataError, match=r"^column 'pairs': row r .*; delete the column and rerun 'viewkit draw'$"):
            stored_recipes("r", fields, pairs)
    copy = Dataset(shutil.copytree(dataset.path, tmp_path / "d"))
    (copy.path / "pairs" / "000001.json").unlink()
    with pytest.raises(MissingError, match="rerun 'viewkit draw', it goes on where it stopped"):
        copy.column("pairs").require_complete()


@pytest.mark.parametrize("column_name", ["images", "runs", "quality", "a/b", ""])
def test_no_other_column_is_overwritten(column_name):
    with pytest.raises(ConfigError, match="name a new one"):
        DrawStage(column_name)


def test_a_column_of_generated_views_is_called_like_one():
    with pytest.raises(ConfigError, match="call it genview or genview_NAME"):
        DrawStage(genview="images")


def test_generated_candidates_reject_images_without_one(dataset):
    config = replace(CONFIG, rounds=1, candidates="generated")
    many = Execution(device="cpu", workers=1, max_rejects=1.0)
    lines = Lines()
    summary = run_stage(DrawStage("pairs_generated"), config, dataset, many, lines)
    assert lines.lines == ["draw: 2 of 24 images have no view in 'genview'; they are rejected"]
    assert dict(summary.rejected) == {"no_generated_view": 2}


def test_drawn_pairs_can_be_joint_and_are_then_another_policys(dataset):
    joint = replace(CONFIG, policy="moco_v3", candidates="original", joint_area=50.0, centre_suppression=0.5)
    run_stage(DrawStage("pairs_joint"), joint, dataset, ON_CPU)
    recipes = np.concatenate(list(recipes_of(dataset, "pairs_joint").values())).astype(np.float64)
    areas = recipes[..., column("height")] * recipes[..., column("width")]
    assert np.abs(np.log(areas[:, 0] / areas[:, 1])).max() < 0.25, "beta 50: the areas of a pair are nearly equal"
    plain = dataset.column("pairs").identity.inputs["policy"]
    assert dataset.column("pairs_joint").identity.inputs["policy"] != plain
    with pytest.raises(ConfigError, match=r"num_views is 4 and area joint in policy .* any two of the views may"):
        DrawStage().check(DrawConfig(num_views=4, joint_area=0.0))
    with pytest.raises(ConfigError, match="it needs multi-crop"):
        DrawStage().check(DrawConfig(joint_area=0.0, joint_views="small"))


def test_what_a_policy_binds_between_two_views_is_refused_where_others_may_be_paired(tmp_path):
    ceiling = tmp_path / "ceiling.toml"
    ceiling.write_text('base = "moco_v3_vit"\n[iou]\nstart = 0.3\nend = 0.3\n')
    for stage, config_class in ((DrawStage(), DrawConfig), (ScoreStage(), ScoreConfig)):
        for policy in ("stl10_jointcrop", str(ceiling)):
            with pytest.raises(ConfigError, match="any two of the views may become a pair"):
                stage.check(config_class(policy=policy, num_views=4, candidates="original"))
            stage.check(config_class(policy=policy, num_views=2, candidates="original"))
        stage.check(config_class(policy="stl10", num_views=4))
        for candidates in ("generated", "mixed"):
            with pytest.raises(ConfigError, match=f"candidates is '{candidates}' and policy 'ceiling' limits"):
                stage.check(config_class(policy=str(ceiling), num_views=2, candidates=candidates))


def test_images_that_generate_left_out_on_purpose_do_not_count_as_rejected(tmp_path):
    made = make_images(tmp_path / "d", count=12, shard_rows=10)
    left_out = [f"row{k:04d}" for k in range(3, 12)]
    make_genview(made, missing=left_out, reason="not_in_subset")
    config = replace(CONFIG, rounds=1, candidates="generated")
    summary = run_stage(DrawStage(), config, made, Execution(device="cpu", workers=1, max_rejects=0.0))
    assert dict(summary.rejected) == {"not_in_subset": 9} and summary.kept == 3
    row = next(
        row for row in ScoreStage().sources(ScoreConfig(candidates="generated"), made).rows(0) if row.key == "row0003"
    )
    found = decode_row(row, made.column("genview"), True, "cpu")
    assert found.reason == "not_in_subset" and found.reason in ScoreStage.by_choice
    assert decode_row(row, made.column("genview"), False, "cpu").generated is None
