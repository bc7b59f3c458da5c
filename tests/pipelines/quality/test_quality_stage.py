import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import reference_genview
import reference_quality as reference
import torch
from small_datasets import contents
from vs2fi_world import make_estimator, make_genview, make_images

from viewkit.pipelines.draw.config import DrawConfig
from viewkit.pipelines.draw.stage import DrawStage
from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.encoders.stored_views import CPU_VIEWS, RowViews, read_views
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.foreground.config import ForegroundConfig
from viewkit.pipelines.foreground.rating import rate_views
from viewkit.pipelines.foreground.stage import ForegroundStage, ViewsForegroundStage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.checkpoint import load_tensors
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.samples import load_image
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.pipelines.quality.stage import QualityStage, rate_rows
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.views.recipe import column, neutral_recipes
from viewkit.pipelines.views.render.render import render
from viewkit.shards.codecs import decode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, MissingError, RefusedError
from viewkit.shards.row import Reject, Row

ON_CPU = Execution(device="cpu", workers=1)
CONFIG = QualityConfig(sign="+", sample=12)
ROUNDS, VIEWS, IMAGES = 2, 4, 24
MISSING = ("row0005",)


def rate(dataset, config=CONFIG, execution=ON_CPU):
    run_stage(ViewsForegroundStage(), config.foreground(), dataset, execution)
    return run_stage(QualityStage(), config, dataset, execution)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Pairs of original and generated views; one row has no generated image."""
    made = make_images(tmp_path_factory.mktemp("quality") / "d", count=IMAGES, shard_rows=10)
    make_estimator(made)
    make_genview(made, missing=MISSING)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=5, images=IMAGES), made, ON_CPU)
    run_stage(ScoreStage(), ScoreConfig(rounds=ROUNDS, num_views=VIEWS, candidates="mixed"), made, ON_CPU)
    rate(made)
    return made


def copy_of(dataset, tmp_path, without=()):
    shutil.copytree(dataset.path, tmp_path / "d")
    for name in without:
        shutil.rmtree(tmp_path / "d" / name)
    return Dataset(tmp_path / "d")


def fields_of(dataset, name, key):
    column_ = dataset.column(name)
    return column_.fields(column_.place_of[key])


def quality_of(dataset, key):
    return decode_npy(fields_of(dataset, "quality", key)["quality.npy"])


def direction_of(dataset):
    return load_tensors(dataset.path / "foreground_views" / "foreground.safetensors")[0]["direction"]


def map_of(dataset, estimator, key, recipe):
    """Tokens [h w k] of one view, rendered and embedded alone."""
    source = "genview" if recipe[column("source")] else "images"
    image = load_image(fields_of(dataset, source, key), "cpu")
    view = render([image], recipe[None], [0], side_px=32, mean=estimator.mean, std=estimator.std)
    return estimator.tokens(view)[0].unflatten(0, (4, 4))


@pytest.mark.parametrize("key", ["row0000", "row0005", "row0017"])
def test_stored_quality_is_that_of_the_papers_loops_over_views_rendered_one_by_one(dataset, key):
    estimator = open_encoder("estimator", dataset)
    direction = direction_of(dataset).tolist()
    recipes = decode_npy(fields_of(dataset, "pairs", key)["recipes.npy"])
    quality = quality_of(dataset, key)
    assert quality.shape == (ROUNDS, VIEWS * (VIEWS - 1) // 2) and quality.dtype == np.float32
    for round in range(ROUNDS):
        maps = [map_of(dataset, estimator, key, recipe).tolist() for recipe in recipes[round]]
        for (first, second), q in zip(pair_index(VIEWS), quality[round], strict=True):
            assert q == pytest.approx(reference.quality(maps[first], maps[second], direction), abs=1e-5)
    assert quality.std() > 1e-3, "the pairs differ"


def test_views_of_generated_images_are_among_those_rated(dataset):
    sources = decode_npy(fields_of(dataset, "pairs", "row0000")["recipes.npy"])[..., column("source")]
    assert sources.tolist() == [[0, 1, 0, 1]] * ROUNDS
    assert not decode_npy(fields_of(dataset, "pairs", MISSING[0])["recipes.npy"])[..., column("source")].any()


def test_the_component_is_that_of_all_positions_of_the_samples_first_views(dataset):
    estimator = open_encoder("estimator", dataset)
    tokens = []
    for key in smallest(dataset.column("pairs").keys(), CONFIG.sample):
        recipes = decode_npy(fields_of(dataset, "pairs", key)["recipes.npy"])[0]
        tokens += [map_of(dataset, estimator, key, recipe).flatten(0, 1) for recipe in recipes]
    expected = reference_genview.first_component(torch.cat(tokens).double().numpy())
    assert abs(float(direction_of(dataset).numpy() @ expected)) == pytest.approx(1, abs=1e-6)
    facts = json.loads((dataset.path / "foreground_views" / "foreground.json").read_text())
    assert facts["images"] == 12 and facts["tokens"] == 12 * VIEWS * 16 and facts["grid"] == [4, 4]


def test_the_other_sign_negates_every_quality(dataset, tmp_path):
    other = copy_of(dataset, tmp_path, without=("quality", "foreground_views"))
    rate(other, replace(CONFIG, sign="-"))
    assert torch.equal(direction_of(other), -direction_of(dataset))
    for key in dataset.column("quality").keys():  # noqa: SIM118
        np.testing.assert_allclose(quality_of(other, key), -quality_of(dataset, key), atol=1e-6)


def test_images_that_were_left_out_on_purpose_do_not_count_as_rejected(dataset, tmp_path):
    other = copy_of(dataset, tmp_path, without=("quality", "foreground_views", "pairs", "genview"))
    make_genview(other, missing=[f"row{k:04d}" for k in range(6)], reason="not_in_subset")
    strict = Execution(device="cpu", workers=1, max_rejects=0.0)
    run_stage(DrawStage(), DrawConfig(rounds=1, candidates="generated", side_px=32), other, strict)
    summary = rate(other, execution=strict)
    assert (summary.kept, dict(summary.rejected)) == (18, {"not_in_subset": 6})
    found = other.column("quality").rejects["row0000"]
    assert found.detail == "column 'pairs' left this image out on purpose"


def rows_of(dataset, keys, device="cpu"):
    found = []
    for key in keys:
        recipes = decode_npy(fields_of(dataset, "pairs", key)["recipes.npy"])
        generated = None if key in MISSING else fields_of(dataset, "genview", key)
        found.append(read_views(key, recipes, fields_of(dataset, "images", key), generated, device))
    return found


def test_every_view_is_rendered_and_embedded_once(dataset, monkeypatch):
    encoder = open_encoder("estimator", dataset)
    rendered, passes = [], []
    encode, draw = Encoder.tokens_and_features, Encoder.render

    def count_render(self, images, recipes, index):
        rendered.extend(recipe.tobytes() for recipe in recipes)
        return draw(self, images, recipes, index)

    def count_passes(self, views):
        passes.append(len(views))
        return encode(self, views)

    monkeypatch.setattr(Encoder, "render", count_render)
    monkeypatch.setattr(Encoder, "tokens_and_features", count_passes)
    rows = rows_of(dataset, dataset.column("pairs").keys()[:9])
    rate_views(rows, encoder, direction_of(dataset))
    views = 9 * ROUNDS * VIEWS
    assert len(rendered) == views == len(set(rendered)), "each view once, not once for each of its 3 pairs"
    assert passes == [CPU_VIEWS] * -(-views // CPU_VIEWS), "full batches only"


def test_a_rows_quality_does_not_depend_on_its_neighbours(dataset):
    encoder = open_encoder("estimator", dataset)
    keys = dataset.column("pairs").keys()
    together = rate_views(rows_of(dataset, keys[:7]), encoder, direction_of(dataset))
    for place in (0, 3, 6):
        (alone,) = rate_views(rows_of(dataset, keys[place : place + 1]), encoder, direction_of(dataset))
        assert np.array_equal(alone, together[place])
        assert np.array_equal(alone, quality_of(dataset, keys[place]))


def test_identical_views_have_quality_zero(dataset):
    encoder = open_encoder("estimator", dataset)
    image = load_image(fields_of(dataset, "images", "row0001"), "cpu")
    row = RowViews("same", (image,), neutral_recipes(6, 32).reshape(2, 3, -1), np.zeros((2, 3), np.int64))
    (quality,) = rate_views([row], encoder, direction_of(dataset))
    assert np.abs(quality).max() < 1e-6


def test_rows_that_cannot_be_looked_at_are_rejects_with_a_reason(dataset):
    encoder = open_encoder("estimator", dataset)
    key = "row0000"
    recipes = decode_npy(fields_of(dataset, "pairs", key)["recipes.npy"])
    image, generated = fields_of(dataset, "images", key), fields_of(dataset, "genview", key)
    rows = [
        read_views("a", recipes, {"png": b"broken"}, generated, "cpu"),
        read_views("b", recipes, image, None, "cpu"),
        read_views("c", recipes, image, generated, "cpu"),
    ]
    a, b, c = rate_rows(rows, encoder, direction_of(dataset))
    assert [a.reason, b.reason] == ["undecodable", "no_generated_view"]
    assert isinstance(c, Row) and np.array_equal(decode_npy(c.fields["quality.npy"]), quality_of(dataset, key))
    (lost,) = rate_rows(rows[2:3], encoder, direction_of(dataset) * torch.nan)
    assert isinstance(lost, Reject) and lost.reason == "non_finite"


def test_a_row_without_pairs_keeps_its_place(dataset, tmp_path):
    other = copy_of(dataset, tmp_path, without=("quality", "foreground_views", "pairs"))
    tolerant = replace(ON_CPU, max_rejects=1.0)
    run_stage(ScoreStage(), ScoreConfig(rounds=1, num_views=2, candidates="generated"), other, tolerant)
    rate(other, execution=tolerant)
    found = other.column("quality")
    assert list(found.rejects) == list(other.column("pairs").rejects) == list(MISSING)
    assert found.rejects[MISSING[0]].reason == "no_pairs" and found.num_rows == IMAGES - 1


def test_a_missing_column_names_the_command_that_makes_it(dataset, tmp_path):
    lacking = copy_of(dataset, tmp_path, without=("quality", "foreground_views", "pairs"))
    with pytest.raises(MissingError, match="has no input 'pairs'; make it with 'viewkit score"):
        rate(lacking)


def test_missing_generated_views_are_named(dataset, tmp_path):
    lacking = copy_of(dataset, tmp_path, without=("quality", "foreground_views", "genview"))
    with pytest.raises(MissingError, match="has no input 'genview'; make it with 'viewkit generate"):
        rate(lacking)


def test_a_quality_of_other_pairs_is_noticed(dataset, tmp_path):
    other = copy_of(dataset, tmp_path, without=("pairs",))
    run_stage(ScoreStage(), ScoreConfig(rounds=1, num_views=2, candidates="mixed"), other, ON_CPU)
    with pytest.raises(DataError, match="it was made from another 'pairs' than the one that is there now"):
        other.check_inputs("quality")


def test_the_fit_of_viewkit_foreground_is_the_one_that_quality_makes(dataset, tmp_path):
    """Whatever --index says: a fit on views has none."""
    other = copy_of(dataset, tmp_path, without=("quality", "foreground_views"))
    config = ForegroundConfig(encoder="estimator", sign="+", sample=12, index=False)
    run_stage(ForegroundStage(of="views"), config, other, ON_CPU)
    assert contents(other.path / "foreground_views") == contents(dataset.path / "foreground_views")
    rate(other)
    assert contents(other.path / "quality") == contents(dataset.path / "quality")


def test_a_fit_takes_the_options_of_its_kind_alone():
    with pytest.raises(ConfigError, match="side_px is 64; it goes with --of views"):
        ForegroundStage().check(ForegroundConfig(side_px=64))
    with pytest.raises(ConfigError, match="--of is 'crops'; a foreground is fitted on images or views"):
        ForegroundStage(of="crops")


def test_a_folder_that_the_encoder_does_not_read_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="goes with --encoder-weights"):
        QualityStage(tmp_path / "weights.safetensors").check(CONFIG)


def test_another_encoder_than_that_of_the_fit_is_refused(dataset, tmp_path):
    other = copy_of(dataset, tmp_path, without=("quality",))
    with pytest.raises(
        RefusedError, match=r"foreground: fitted with another encoder \(differing: enc.*rerun 'viewkit quality'"
    ):
        run_stage(QualityStage(), replace(CONFIG, encoder="timm:test_convnext/random"), other, ON_CPU)


def test_an_open_sign_stops_with_a_contact_sheet_and_goes_on_with_sign(dataset, tmp_path):
    other = copy_of(dataset, tmp_path, without=("quality", "foreground_views"))
    with pytest.raises(DataError, match=r"look at foreground_views/masks\.png.*'viewkit quality DATASET' with --sign"):
        rate(other, replace(CONFIG, sign="auto"))
    assert (other.path / "foreground_views" / "masks.png").is_file()
    with pytest.raises(DataError, match="'viewkit foreground --of views DATASET' with --sign"):
        run_stage(ForegroundStage(of="views"), replace(CONFIG, sign="auto").foreground(), other, ON_CPU)
    rate(other)
    assert contents(other.path / "quality") == contents(dataset.path / "quality")


def test_a_dry_run_says_how_many_views_would_be_encoded_and_writes_nothing(dataset, tmp_path):
    other = copy_of(dataset, tmp_path, without=("quality", "foreground_views"))
    before = contents(other.path)
    plan = plan_stage(ViewsForegroundStage(), CONFIG.foreground(), other, ON_CPU)
    assert plan["encoded"] == 12 * (VIEWS + 1) and plan["estimated_s"] >= 0
    assert contents(other.path) == before


def test_too_few_rows_for_a_component_are_one_clear_line(tmp_path):
    few = make_images(tmp_path / "d", count=8)
    make_estimator(few)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=3, images=8), few, ON_CPU)
    run_stage(ScoreStage(), ScoreConfig(rounds=1, num_views=2), few, ON_CPU)
    with pytest.raises(DataError, match=r"has 8 rows with pairs .* a component takes 10 or more; score more images"):
        rate(few)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_qualities_to_rounding(dataset):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    keys = dataset.column("pairs").keys()[:5]
    encoder, direction = open_encoder("estimator", dataset, device="cuda"), direction_of(dataset).to("cuda")
    for key, quality in zip(keys, rate_views(rows_of(dataset, keys, "cuda"), encoder, direction), strict=True):
        np.testing.assert_allclose(quality, quality_of(dataset, key), atol=1e-3)


@pytest.mark.slow
def test_two_workers_write_the_same_bytes(dataset, tmp_path):
    other = copy_of(dataset, tmp_path, without=("quality",))
    rate(other, execution=replace(ON_CPU, workers=2))
    assert contents(other.path / "quality") == contents(dataset.path / "quality")


def test_a_column_of_which_shards_are_lost_is_completed_to_the_same_bytes(dataset, tmp_path):
    other = copy_of(dataset, tmp_path)
    (other.path / "quality" / "000001.json").unlink()
    rate(other)
    assert contents(other.path / "quality") == contents(dataset.path / "quality")
