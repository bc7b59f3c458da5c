import base64
import hashlib
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from small_datasets import CPU

from viewkit.pipelines.browse.candidates import Groups, joined, read_groups
from viewkit.pipelines.browse.command import policy_word, run_command
from viewkit.pipelines.browse.config import BrowseConfig
from viewkit.pipelines.browse.data import KINDS, as_script
from viewkit.pipelines.browse.measures import crop_overlaps
from viewkit.pipelines.browse.shown import logged_by, stored_pairs
from viewkit.pipelines.browse.stage import BrowseStage
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.views.colours import hellinger, lab_histograms
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import column, neutral_recipes
from viewkit.pipelines.views.render.render import render
from viewkit.shards.codecs import decode_image, decode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError, DataError, MissingError
from viewkit.shards.row import Row

SMALL = BrowseConfig(points=120, pairs=24)
PAIRS = 6
"""Of four views."""


def browse(dataset, config=SMALL, **places):
    run_stage(BrowseStage(**places), config, dataset, CPU)
    return dataset.artifact("browse").path("index.html").read_text()


def content(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def unpacked(packed):
    return np.frombuffer(base64.b64decode(packed["base64"]), KINDS[packed["kind"]])


def axis(found, name):
    return next(unpacked(each["values"]) for each in found["axes"] if each["name"] == name)


def pixels(uri):
    data = base64.b64decode(uri.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.fixture(scope="module")
def html(scored):
    return browse(scored)


@pytest.fixture(scope="module")
def found(html):
    return content(html)


def test_the_policy_of_the_page_allows_its_own_script_and_style_and_nothing_else(html):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)[1].replace("&#39;", "'")
    blocks = {"script": re.search(r"<script>(.*?)</script>", html, re.DOTALL)[1]}
    blocks["style"] = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    hashes = {name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for name, text in blocks.items()}
    assert policy.split("; ") == [
        "default-src 'none'", f"script-src 'sha256-{hashes['script']}'", f"style-src 'sha256-{hashes['style']}'",
        "img-src data:", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert (
        html.count("<script") == 2
        and " style=" not in html
        and not re.search(r"\son[a-z]+=", html.partition("<script")[0])
    )


def test_the_views_are_the_pixels_of_render_and_the_columns_are_those_on_disk(scored, found, build):
    pairs, images, genview = (scored.column(name) for name in ("pairs", "images", "genview"))
    keys = smallest(pairs.keys(), 100)
    assert found["keys"] == keys[:20]  # 120 pairs: round 0 of 20 rows
    for group, key in enumerate(keys[:3]):
        recipes = decode_npy(pairs.fields(pairs.place_of[key])["recipes.npy"])[0]
        sources = [images, *([genview] if key in genview.place_of else [])]
        tensors = [torch.from_numpy(np.array(decode_image(each.fields(each.place_of[key])))) for each in sources]
        index = recipes[:, column("source")].astype(int)
        plain = render(tensors, recipes, index, side_px=32, mean=(0, 0, 0), std=(1, 1, 1)).clamp(0, 1)
        views = (plain * 255).round().permute(0, 2, 3, 1).numpy()
        for view in range(build.VIEWS):
            np.testing.assert_array_equal(pixels(found["views"][group][view]), views[view])
        histograms = lab_histograms(views / 255)
        assert axis(found, "colour")[group * PAIRS] == pytest.approx(hellinger(histograms[0], histograms[1]), abs=1e-6)
        scores = decode_npy(pairs.fields(pairs.place_of[key])["scores.npy"])[0]
        part = slice(group * PAIRS, (group + 1) * PAIRS)
        np.testing.assert_array_equal(axis(found, "consistency")[part], scores[:, 0])
        np.testing.assert_array_equal(axis(found, "level")[part], scores[:, 1])
        similarities = unpacked(found["similarities"]).reshape(-1, 1 + build.EXITS)
        np.testing.assert_array_equal(similarities[part], scores[:, 2:])


def test_what_is_not_known_of_a_pair_is_no_number(scored, found, build):
    quality, noise = axis(found, "quality").reshape(20, PAIRS), axis(found, "noise").reshape(20, PAIRS)
    for row, key in enumerate(found["keys"]):
        k = build.KEYS.index(key)
        assert np.isnan(quality[row]).all() if k == 5 else np.allclose(quality[row], k / 10)
        assert np.isnan(noise[row]).all() if k == 3 else (noise[row] == 100 * (k % 3)).all()
        assert found["class_names"][unpacked(found["classes"])[row]] == build.CLASSES[k % 3]
    assert [each["label"] for each in found["absent"]] == ["loss"]


def test_crops_of_two_images_have_no_overlap_and_equal_ones_overlap_wholly():
    recipes = neutral_recipes(3, 32)[None]
    recipes[0, 1, column("height")] = 0.25
    recipes[0, 2, column("source")] = 1
    groups = Groups(["a"], np.zeros(1, np.int64), recipes)
    np.testing.assert_array_equal(crop_overlaps(groups), [[0.25, np.nan, np.nan]])


def test_groups_are_whole_and_further_rounds_come_after_all_rows(scored, build):
    groups = read_groups(scored.column("pairs"), PAIRS * (build.NUM_ROWS + 4) + 3)
    keys = smallest(scored.column("pairs").keys(), 100)
    assert groups.keys == [*keys, *keys[:4]] and groups.places.tolist() == [0] * build.NUM_ROWS + [1] * 4
    assert len(read_groups(scored.column("pairs"), 1).keys) == 1


def test_drawn_pairs_have_only_overlap_and_colour(scored):
    found = content(browse(scored, BrowseConfig(points=30, pairs=6), column="pairs_drawn"))
    assert [each["name"] for each in found["axes"]] == ["overlap", "colour", "noise"]
    assert "similarities" not in found and "reading" not in found


def test_the_pairs_that_a_run_logged_come_with_their_losses(scored, build):
    found = content(browse(scored, run="hard"))
    chosen, losses = unpacked(found["chosen"]).reshape(-1, PAIRS), axis(found, "loss").reshape(-1, PAIRS)
    assert (chosen.argmax(axis=1) == losses.argmax(axis=1)).all() and (chosen.sum(axis=1) == 1).all()
    assert set(unpacked(found["places"])) == {0, 10} and found["run"] == "hard" and "--select hard" in found["command"]


def test_several_runs_are_shown_together_and_told_apart(scored, build):
    build.make_run(scored, "other", steps=(20,))
    found = content(browse(scored, BrowseConfig(points=60, pairs=6), run="hard,other"))
    run_of, steps = unpacked(found["run_of"]), unpacked(found["places"])
    assert found["runs"] == ["hard", "other"] and (run_of == [0] * 5 + [1] * 5).all()
    assert set(steps[run_of == 1]) == {20} and set(steps[run_of == 0]) <= {0, 10}


def test_runs_whose_views_are_not_alike_are_refused(scored, build):
    build.make_run(scored, "larger", side_px=48)
    with pytest.raises(
        ConfigError, match=r"side_px is 32 in run 'hard' and 48 in run 'larger'; browse them one by one"
    ):
        browse(scored, run="hard,larger")
    recipes = neutral_recipes(5, 32)
    parts = [Groups(["a"], np.zeros(1, np.int64), recipes[None, :count]) for count in (2, 3)]
    with pytest.raises(DataError, match="runs a, b compared 2 and 3 views of an image"):
        joined(parts, "runs a, b")


def test_images_alone_are_refused_in_one_line(tmp_path, build):
    dataset = build.make_images(tmp_path / "d", labels=False)
    with pytest.raises(MissingError, match=r"has no input 'pairs'; make it with 'viewkit score"):
        browse(dataset)
    build.write_column(dataset, "pairs", [], "score", {"policy": "strengthened"}, build.SAMPLED)
    with pytest.raises(DataError, match="column 'pairs' has no rows"):
        browse(dataset)


def test_without_labels_histograms_and_generated_views_the_page_says_what_is_not_there(tmp_path, build):
    dataset = build.make_images(tmp_path / "d", labels=False)
    build.make_pairs(dataset, build.make_histograms(dataset), candidates="original")
    found = content(browse(dataset))
    assert found["class_names"] == [] and "reading" in found
    assert [each["label"] for each in found["absent"]] == ["quality", "noise level", "loss"]
    (dataset.path / "histograms" / "receipt.json").unlink()
    with pytest.raises(MissingError, match="not finished"):
        browse(dataset)


@pytest.mark.slow
def test_histograms_of_another_estimator_are_not_read(tmp_path, build):
    dataset = build.make_images(tmp_path / "d")
    build.make_pairs(dataset, build.make_histograms(dataset), candidates="original")
    identity = dataset.column("pairs").identity
    rows = [dataset.column("pairs").row(k) for k in range(build.NUM_ROWS)]
    inputs = {name: value for name, value in identity.inputs.items() if name != "histograms"}
    other = Dataset(dataset.path)
    build.write_column(other, "pairs_other", rows, "score", dict(identity.config), {**inputs, "histograms": "0" * 64})
    with pytest.raises(DataError, match="made from another 'histograms'"):
        browse(other, column="pairs_other")


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ({"column": "pairs_drawn", "run": "hard"}, "pairs are of one of them"),
        ({"run": "../x"}, "it must be names of runs"),
        ({"run": "a,a"}, "it must be names of runs"),
        ({"run": ""}, "it must be names of runs"),
    ],
)
def test_places_that_cannot_be_are_refused(places, words):
    with pytest.raises(ConfigError, match=words):
        BrowseStage(**places)


def test_a_run_without_pairs_or_keys_is_refused(scored, build):
    build.make_run(scored, "plain", steps=())
    build.make_run(scored, "older", keys=None)
    with pytest.raises(DataError, match=r"'plain' logged no pairs; a run with --select hard --log-views"):
        browse(scored, run="plain")
    with pytest.raises(DataError, match="'older' logged its pairs without their keys"):
        browse(scored, run="older")


@pytest.mark.slow
def test_a_policy_that_nothing_names_must_be_given(tmp_path, build):
    dataset = build.make_images(tmp_path / "d", labels=False)
    build.make_pairs(dataset, build.make_histograms(dataset), candidates="original")
    rows = [dataset.column("pairs").row(k) for k in range(3)]
    build.write_column(dataset, "pairs_own", rows, "score", {"policy": "own.toml"}, {"policy": "1" * 64})
    with pytest.raises(ConfigError, match=r"column 'pairs_own' was sampled by 'own.toml'.*--policy"):
        browse(dataset, column="pairs_own")
    found = content(browse(dataset, BrowseConfig(points=6, pairs=6, policy="byol", side_px=16), column="pairs_own"))
    assert (found["policy"], found["side_px"]) == ("byol", 16) and pixels(found["views"][0][0]).shape == (16, 16, 3)


def test_a_policy_file_is_part_of_the_page_by_what_it_says(scored, tmp_path):
    """A file that is written anew under the same name gives another page."""
    path = tmp_path / "mine.toml"

    def identity(interpolation):
        path.write_text(f'base = "strengthened"\ninterpolation = "{interpolation}"\n')
        config = BrowseConfig(policy=str(path))
        return BrowseStage().inputs(config, scored)

    first, second, again = (identity(each) for each in ("bilinear", "bicubic", "bilinear"))
    assert first != second and first == again
    assert first["policy"] == digest(replace(load_policy("strengthened"), name="mine").to_dict())
    assert "policy" not in BrowseStage().inputs(SMALL, scored)


@pytest.mark.slow
def test_pictures_keep_to_their_bytes(scored):
    most = content(browse(scored, BrowseConfig(points=120, pairs=60)))
    less = content(browse(scored, BrowseConfig(points=120, pairs=120, megabytes=0.03)))
    none = content(browse(scored, BrowseConfig(points=120, pairs=0)))
    assert len(most["views"]) == 10 and 0 < len(less["views"]) < 10 and none["views"] == []
    size = sum(len(uri) for part in (less["views"], less["images"]) for group in part for uri in group)
    assert size <= 30_000
    assert "colour distance" in [each["label"] for each in none["absent"]]


@pytest.mark.slow
def test_the_same_pairs_give_the_same_page_and_other_options_replace_it(scored):
    first, other = browse(scored), browse(scored, BrowseConfig(points=12, pairs=6))
    assert browse(scored) == first != other


def test_a_name_cannot_end_the_element_that_holds_it():
    text = as_script({"name": "</script><script>alert(1)//<!--\u2028"})
    assert "<" not in text and json.loads(text)["name"] == "</script><script>alert(1)//<!--\u2028"


@pytest.mark.parametrize("option", [{"points": 0}, {"pairs": -1}, {"thumb_px": 8}, {"side_px": 2}, {"megabytes": -1}])
def test_options_out_of_range_are_refused_by_name(option):
    (name,) = option
    with pytest.raises(ConfigError, match=f"{name} is"):
        BrowseConfig(**option)


def test_qualities_of_the_same_views_are_shown_of_rescored_pairs(scored, build):
    pairs = scored.column("pairs")
    rows = [Row(row.key, row.fields) for row in pairs.rows(0)]
    inputs = {**pairs.identity.inputs, "similarities": pairs.digest}
    build.write_column(scored, "pairs_rescored", rows, "rescore", pairs.identity.config, inputs)
    shown = stored_pairs(scored, "pairs_rescored", None)
    assert shown.quality == "quality"
    assert stored_pairs(scored, "pairs_drawn", None).quality is None


def test_what_the_page_says_to_type_names_policies_that_a_training_takes(scored):
    shown, run = stored_pairs(scored, "pairs", None), logged_by(scored, ["hard"], None)
    assert policy_word(shown) == "strengthened"
    for given, word in (("my/own.toml", "my/own.toml"), ("a b.toml", "'a b.toml'"), (None, "own.toml")):
        identity = replace(shown.identity, config={"policy": given} if given else {})
        assert policy_word(replace(shown, identity=identity, policy=replace(shown.policy, name="own"))) == word
    other = replace(run.identity, config={**run.config, "alpha": 0.5, "select_static_colour": True})
    said = run_command(replace(run, identity=other)).split(" --")
    assert said[:4] == ["viewkit pretrain DATASET", "name NAME", "framework moco_v3", "side-px 32"]
    assert said[4] == "policy strengthened" and "select hard" in said
    assert "alpha 0.5" in said and "select-static-colour" in said and not any("weights" in each for each in said)
    assert run_command(replace(run, of="runs/hard,second")) is None and run_command(shown) is None
