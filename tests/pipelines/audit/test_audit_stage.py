import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from vs2fi_world import SIDE_PX, make_estimator, make_genview, make_images, write_column

from viewkit.pipelines.audit.classifier import ClassifierFiles
from viewkit.pipelines.audit.config import AuditConfig
from viewkit.pipelines.audit.galleries import pick_pairs, render_pairs
from viewkit.pipelines.audit.stage import PICTURES, AuditStage
from viewkit.pipelines.audit.tables import audit_tables, markdown
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.pairs.column import SIMILARITIES, read_pairs
from viewkit.pipelines.score.config import RescoreConfig, ScoreConfig
from viewkit.pipelines.score.rescore import RescoreStage
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.colours import hellinger, lab_histograms
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import BOX, column, neutral_recipes
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.scores import rescore
from viewkit.pipelines.vs2fi.threshold import consistency_threshold
from viewkit.shards.codecs import decode_image, decode_npy, encode_json, encode_npy, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.files import make_folder
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Row
from viewkit.shards.writer import ShardWriter

ON_CPU = Execution(device="cpu", workers=1)
CONFIG = AuditConfig(k_sc=0.99, images=12, gallery=2, tile_px=16)


class WithoutPictures(AuditStage):
    """The same numbers in a third of the time."""

    def _plots(self, *_):
        pass

    def _galleries(self, *_):
        pass


def audit(dataset, config=CONFIG, kind=WithoutPictures, **arguments):
    run_stage(kind(**arguments), config, dataset, ON_CPU)
    return json.loads(dataset.artifact("audit").path("audit.json").read_text())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    dataset = make_images(tmp_path_factory.mktemp("audit") / "d", count=14)
    make_genview(dataset)
    make_estimator(dataset)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=6, images=14), dataset, ON_CPU)
    run_stage(ScoreStage(), ScoreConfig(rounds=3), dataset, ON_CPU)
    return dataset


@pytest.fixture(scope="module")
def found(dataset):
    return audit(dataset)


def stored(dataset, key, name="pairs"):
    pairs = dataset.column(name)
    fields = pairs.fields(pairs.place_of[key])
    return decode_npy(fields["recipes.npy"]), decode_npy(fields["scores.npy"])


def test_it_looks_at_the_rows_with_the_smallest_hashes_and_the_first_rounds(dataset, found):
    assert (found["images"], found["rounds"], found["pairs"]) == (12, 2, 12 * 2 * 10)
    keys = smallest(dataset.column("pairs").keys(), 12)
    below = np.mean([stored(dataset, key)[1][:2, :, 0] < 0.99 for key in keys])
    assert found["filtered"]["all"]["below_k_sc"] == pytest.approx(below)
    assert len(found["filtered"]["rounds"]) == 2


@pytest.mark.parametrize("share", [None, 0.5])
def test_without_k_sc_the_threshold_is_that_of_a_share(dataset, share):
    found = audit(dataset, replace(CONFIG, images=4, rounds=1, k_sc=None, filter_share=share))
    histograms = Histograms.load(dataset.artifact("histograms"))
    assert found["k_sc"] == consistency_threshold(histograms, share or 0.08)[0]


def test_the_grid_counts_every_pair_once(found):
    assert np.sum(found["grid"]["count"]) == found["pairs"]


class Resized(WithoutPictures):
    """Notes how its galleries would be resized."""

    interpolation = ""

    def _galleries(self, *arguments):
        Resized.interpolation = arguments[-1]


def follow(dataset, policy):
    """The pairs again, in a column of the policy's name, as if sampled by it."""
    pairs = dataset.column("pairs")
    inputs = {**pairs.identity.inputs, "policy": digest(load_policy(policy).to_dict())}
    identity, folder = replace(pairs.identity, inputs=inputs), dataset.path / f"pairs_{policy}"
    if folder.exists():
        return folder.name
    make_folder(folder)
    write_identity(folder / "column.json", identity)
    for shard in range(pairs.num_shards):
        with ShardWriter(folder, shard, identity.digest) as writer:
            for row in pairs.rows(shard):
                writer.write(row)
            writer.finish()
    return folder.name


@pytest.mark.parametrize(("policy", "interpolation"), [("strengthened", "bilinear"), ("byol", "bicubic")])
def test_mean_distances_equal_those_of_views_rendered_one_by_one(dataset, policy, interpolation):
    """Over the whole grid: the cells' means weighed by their counts. Colours are those of views resized as the policy
    does, features those of views as the encoder takes them."""
    found = audit(dataset, replace(CONFIG, images=3, rounds=1), kind=Resized, column=follow(dataset, policy))
    assert Resized.interpolation == interpolation
    estimator = open_encoder("estimator", dataset)
    images = dataset.column("images")
    colour, features = [], []
    for key in smallest(dataset.column("pairs").keys(), 3):
        image = torch.from_numpy(decode_image(images.fields(images.place_of[key])))
        for round_ in stored(dataset, key)[0][:1]:
            plain = [
                render(
                    [image], view[None], [0], side_px=SIDE_PX, mean=(0,) * 3, std=(1,) * 3, interpolation=interpolation
                )
                for view in round_
            ]
            hists = [lab_histograms(view.clamp(0, 1).permute(0, 2, 3, 1).numpy())[0] for view in plain]
            seen = [
                estimator.features(
                    render([image], view[None], [0], side_px=SIDE_PX, mean=estimator.mean, std=estimator.std)
                )[0].double()
                for view in round_
            ]
            for i in range(5):
                for j in range(i + 1, 5):
                    colour.append(hellinger(hists[i], hists[j]))
                    features.append(1 - float(torch.dot(seen[i], seen[j]) / seen[i].norm() / seen[j].norm()))

    def overall(name):
        means, counts = np.array(found["grid"][name], dtype=np.float64), np.array(found["grid"]["count"])
        return float(np.nansum(means * counts) / counts.sum())

    assert overall("colour") == pytest.approx(np.mean(colour), abs=1e-5)
    assert overall("features") == pytest.approx(np.mean(features), abs=1e-5)


def test_galleries_show_views_resized_as_the_policy_does(dataset):
    images, sample = dataset.column("images"), read_pairs(dataset.column("pairs"), 1, 1)
    image = torch.from_numpy(decode_image(images.fields(images.place_of[sample.keys[0]])))
    recipes = sample.recipes[0, 0, sample.views[3]]
    for interpolation in ("bilinear", "bicubic"):
        (picture,) = render_pairs(sample, [(0, 0, 3)], images, None, 16, interpolation)
        views = render([image], recipes, [0, 0], side_px=16, mean=(0,) * 3, std=(1,) * 3, interpolation=interpolation)
        wanted = (views.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
        np.testing.assert_array_equal(picture[:, :16], wanted[0])
        np.testing.assert_array_equal(picture[:, -16:], wanted[1])
    assert (picture != render_pairs(sample, [(0, 0, 3)], images, None, 16)[0]).any()


def test_without_annotations_or_classifier_it_says_what_it_used_instead(found):
    assert found["high_level"]["chosen"] == "features" and "no independent judge" in found["high_level"]["about"]
    assert found["annotations"] == {"images": 0, "unusable": {"no objects are listed": 12}, "visible_share": 0.02}
    assert [each["name"] for each in found["ground_truth"]] == ["near_duplicate"]


def test_gamma_is_read_off_the_stored_similarities(dataset, found):
    histograms = Histograms.load(dataset.artifact("histograms"))
    keys = smallest(dataset.column("pairs").keys(), 12)
    similarities = np.stack([stored(dataset, key)[1][:2, :, SIMILARITIES:] for key in keys])
    for point in found["sensitivity"]["gamma"]:
        level = rescore(similarities, histograms, point["value"])[1]
        assert point["below_k_al"] == pytest.approx((level < found["k_al"]).mean())
    (used,) = [point for point in found["sensitivity"]["gamma"] if point["value"] == found["gamma"] == 1 / 64]
    assert used["surviving"] == found["filtered"]["all"]["surviving"]


def test_near_duplicates_are_counted_by_the_stated_rule(dataset, found):
    boxes = [stored(dataset, key)[0][:2, :, BOX] for key in smallest(dataset.column("pairs").keys(), 12)]
    wide = audit(dataset, replace(CONFIG, duplicate_colour=1.0))["ground_truth"][-1]
    count = 0
    for row in boxes:
        for views in row.astype(np.float64):
            count += sum(overlap(views[i], views[j]) >= 0.5 for i in range(5) for j in range(i + 1, 5))
    assert wide["true"] == count > found["ground_truth"][-1]["true"]


@pytest.mark.slow
def test_pictures_are_written_beside_and_kept_out_of_the_digest(toy):
    numbers = audit(toy, replace(CONFIG, k_al=2), kind=AuditStage)
    artifact = toy.artifact("audit")
    assert set(PICTURES) == set(artifact.receipt["logs"])
    for name in PICTURES:
        with Image.open(artifact.path(name)) as picture:
            assert np.asarray(picture.convert("L")).std() > 5
    before = artifact.digest
    assert audit(toy, replace(CONFIG, k_al=3)) != numbers
    assert audit(toy, replace(CONFIG, k_al=2)) == numbers and toy.artifact("audit").digest == before


def test_an_audit_with_other_options_replaces_the_old_one_and_the_same_is_already_there(dataset):
    first = audit(dataset, replace(CONFIG, images=5))
    again = run_stage(AuditStage(), replace(CONFIG, images=5), dataset, ON_CPU)
    assert again.written == 0 and first["images"] == 5
    assert audit(dataset)["images"] == 12


def test_the_same_sample_whatever_the_sharding(dataset, tmp_path):
    pairs = dataset.column("pairs")
    (tmp_path / "other").mkdir()
    other = Dataset(tmp_path / "other")
    write_column(other, "pairs", [pairs.row(index) for index in range(pairs.num_rows)], 7, stage="score")
    ours, theirs = read_pairs(pairs, 12, 2), read_pairs(other.column("pairs"), 12, 2)
    assert ours.keys == theirs.keys == smallest(pairs.keys(), 12)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    np.testing.assert_array_equal(ours.recipes, theirs.recipes)


def test_rows_of_differing_shapes_and_lacking_fields_are_named(tmp_path):
    def pairs(name, *rows):
        (tmp_path / name).mkdir()
        other = Dataset(tmp_path / name)
        write_column(other, "pairs", list(rows), 7, stage="score")
        return other.column("pairs")

    def row(key, rounds):
        recipes = np.tile(neutral_recipes(2, SIDE_PX), (rounds, 1, 1))
        scores = np.zeros((rounds, 1, 5), dtype=np.float32)
        return Row(key, {"recipes.npy": encode_npy(recipes), "scores.npy": encode_npy(scores)})

    with pytest.raises(DataError, match=r"column 'pairs', row [ab]: recipes .* and row [ab] has"):
        read_pairs(pairs("shapes", row("a", 1), row("b", 2)), 9, 2)
    with pytest.raises(DataError, match=r"column 'pairs', row a: lacks 'scores.npy'"):
        read_pairs(pairs("lacking", Row("a", {"recipes.npy": row("a", 1).fields["recipes.npy"]})), 9, 2)


def test_another_column_of_pairs_is_audited_with_its_own_gamma(dataset):
    run_stage(RescoreStage(), RescoreConfig(gamma=0.25), dataset, ON_CPU)
    found = audit(dataset, column="pairs_rescored")
    assert found["gamma"] == 0.25 and found["column"] == "pairs_rescored"
    (point,) = [each for each in found["sensitivity"]["gamma"] if each["value"] == 0.25]
    assert point["below_k_al"] == found["filtered"]["all"]["below_k_al"]


def test_views_of_generated_images_are_looked_at_too_and_their_crops_not_compared(dataset, tmp_path):
    mixed = Dataset(tmp_path / "mixed")
    copy_without(dataset, mixed, "pairs", "pairs_rescored", "audit")
    run_stage(ScoreStage(), ScoreConfig(rounds=1, candidates="mixed"), mixed, ON_CPU)
    found = audit(mixed)
    assert AuditStage().inputs(CONFIG, mixed)["genview"] == mixed.column("genview").digest
    assert found["pairs"] == 12 * 10
    assert found["ground_truth"][-1]["pairs"] == 12 * 4  # of views 0 ... 4 the second and fourth are generated
    before = np.array(found["grid"]["colour"], dtype=np.float64)
    assert not np.allclose(np.nan_to_num(before), np.nan_to_num(np.array(audit(dataset)["grid"]["colour"], float)))


def copy_without(dataset, target, *names):
    import shutil

    shutil.copytree(dataset.path, target.path, ignore=shutil.ignore_patterns(*names))


def test_a_classifiers_probabilities_are_the_high_level_distance_where_one_is_given(dataset, tmp_path):
    torch.manual_seed(0)
    arch = "resnet10t"
    model = timm.create_model(arch, num_classes=7)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    cfg = {"input_size": [3, 24, 24], "mean": [0.5] * 3, "std": [0.25] * 3}
    (tmp_path / "config.json").write_text(json.dumps({"architecture": arch, "num_classes": 7, "pretrained_cfg": cfg}))
    found = audit(dataset, replace(CONFIG, images=3), classifier=tmp_path)
    assert found["high_level"]["chosen"] == "classes"

    images, distances = dataset.column("images"), []
    model.eval()
    for key in smallest(dataset.column("pairs").keys(), 3):
        image = torch.from_numpy(decode_image(images.fields(images.place_of[key])))
        for round_ in stored(dataset, key)[0][:2]:
            views = render([image], round_, [0] * 5, side_px=24, mean=(0.5,) * 3, std=(0.25,) * 3)
            with torch.inference_mode():
                p = model(views).softmax(1).numpy()
            distances += [hellinger(p[i], p[j]) for i in range(5) for j in range(i + 1, 5)]
    means, counts = np.array(found["grid"]["classes"], dtype=np.float64), np.array(found["grid"]["count"])
    assert float(np.nansum(means * counts) / counts.sum()) == pytest.approx(np.mean(distances), abs=1e-5)
    alone = ClassifierFiles(tmp_path / "model.safetensors", arch)
    assert alone.load("cpu").features(torch.zeros(1, 3, 32, 32)).shape == (1, 7)


@pytest.mark.parametrize(
    ("name", "arch", "error", "message"),
    [
        ("absent.safetensors", "resnet10t", DataError, "there is no such file"),
        ("weights.pth", "resnet10t", DataError, "may run code when loaded"),
        ("model.safetensors", None, ConfigError, "does not say its architecture"),
        ("model.safetensors", "resnet9000", ConfigError, "no model of timm"),
        ("model.safetensors", "resnet10t", DataError, "holds no classifier 'fc'"),
        ("headed.safetensors", "resnet10t", DataError, "weights of another network than 'resnet10t'"),
        ("text.safetensors", "resnet10t", DataError, "not a safetensors file"),
    ],
)
def test_a_classifier_that_cannot_be_used_is_named(tmp_path, name, arch, error, message):
    save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors")
    save_file({"fc.bias": torch.zeros(2)}, tmp_path / "headed.safetensors")
    (tmp_path / "weights.pth").write_bytes(b"pickle")
    (tmp_path / "text.safetensors").write_bytes(b"text that is no header of safetensors")
    with pytest.raises(error, match=message):
        ClassifierFiles(tmp_path / name, arch).load("cpu")


def test_a_gallery_shows_every_row_once_and_only_its_range():
    place = np.random.default_rng(0).integers(0, 4, (9, 2, 10))
    for part in range(4):
        chosen = pick_pairs(place, part, 6, np.random.default_rng(1))
        assert len(chosen) == len({row for row, _, _ in chosen}) == 6
        assert all(place[each] == part for each in chosen)
    assert pick_pairs(place, 7, 6, np.random.default_rng(1)) == []


def test_tables_hold_the_numbers(found):
    tables = audit_tables(found)
    assert [len(row) for table in tables for row in table.rows] == [
        len(table.columns) for table in tables for _ in table.rows
    ]
    assert [each["title"] for each in found["tables"]] == [table.title for table in tables]
    text = markdown(tables)
    assert f"| all | {100 * found['filtered']['all']['below_k_sc']:.1f} |" in text
    assert f"{found['ground_truth'][-1]['rules'][0]['roc_area']:.3f}" in text


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_world(tmp_path_factory.mktemp("audit") / "toy")


def toy_world(path: Path) -> Dataset:
    """Images whose left half shows one object and whose right half another; crops of either half, scored rightly.

    Semantic Consistency is 1 for two crops of the same half and lower else; Alignment Level is 1 for equal crops and
    6 else.
    """
    dataset = Dataset(path)
    mask = np.ones((32, 64), dtype=np.uint8)
    mask[:, 32:] = 2
    pixels = np.where(mask[..., None] == 1, (220, 30, 30), (30, 30, 220)).astype(np.uint8)
    listed = [
        {"value": 1, "category": "cat", "bbox": [0, 0, 32, 32]},
        {"value": 2, "category": "dog", "bbox": [32, 0, 32, 32]},
    ]
    facts = encode_json({"metadata": {"objects": listed}})
    from io import BytesIO

    stream = BytesIO()
    Image.fromarray(mask).save(stream, "PNG")
    fields = {"png": encode_png(pixels), "json": facts, "mask.png": stream.getvalue()}
    keys = [f"row{number}" for number in range(6)]
    path.mkdir()
    write_column(dataset, "images", [Row(key, fields) for key in keys], 6)
    make_estimator(dataset)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=2, images=6), dataset, ON_CPU)
    write_pairs(dataset, keys, 6)
    return dataset


def write_pairs(dataset, keys, num_exits):
    rows = []
    for number, key in enumerate(keys):
        recipes = neutral_recipes(4, SIDE_PX)
        recipes[:, column("flip")] = [0, 1, 0, 1]
        for recipe, left, top in zip(recipes, (0.0, 0.0, 0.5, 0.5), (0, 0, 0, 0.5), strict=True):
            recipe[column("top") : column("width") + 1] = top, left, 0.5, 0.5
        scores = np.zeros((1, 6, 3 + num_exits), dtype=np.float32)
        for c, (i, j) in enumerate([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]):
            scores[0, c, 0] = 1.0 if (i < 2) == (j < 2) else 0.1 + 0.1 * number
            scores[0, c, 1] = 1 if (i, j) == (0, 1) else 6
            scores[0, c, 2:] = 2 * scores[0, c, 0] - 1
        rows.append(Row(key, {"recipes.npy": encode_npy(recipes[None]), "scores.npy": encode_npy(scores)}))
    folder = dataset.path / "pairs"
    folder.mkdir()
    identity = Identity("score", 1, {"gamma": 1 / 64}, {}, {"shards": 1, "rows": 6})
    write_identity(folder / "column.json", identity)
    with ShardWriter(folder, 0, identity.digest) as writer:
        for row in rows:
            writer.write(row)
        writer.finish()


def test_indicators_that_are_right_have_roc_area_1_and_those_that_know_nothing_a_half(toy):
    found = audit(toy, replace(CONFIG, k_al=2))
    answers = {each["name"]: each for each in found["ground_truth"]}
    right = {"roc_area": 1.0, "precision": 1.0, "recall": 1.0, "found": 1.0}

    def rules(answer):
        return {each["name"]: {key: each[key] for key in right} for each in answer["rules"]}

    for name in ("things", "thing_categories", "segments", "categories"):
        answer = answers[f"no_shared_{name}"]
        assert (answer["pairs"], answer["true"], answer["flagged"]) == (36, 24, 24)
        assert rules(answer)["semantic_consistency"] == right
        assert rules(answer)["colour_likeness"]["roc_area"] == 1.0  # red and blue
        # One of the two pairs of a row that do share is as far apart as all others.
        assert rules(answer)["crop_overlap"]["roc_area"] == 0.75
    duplicates = answers["near_duplicate"]
    assert (duplicates["true"], duplicates["flagged"]) == (6, 6)
    assert rules(duplicates)["alignment_level"] == right
    assert found["high_level"]["chosen"] == "categories"
    assert found["correlation"]["categories"]["consistency"] < -0.8
    assert found["annotations"]["images"] == 6


@pytest.mark.parametrize("facts", [{"architecture": 7}, {"architecture": "resnet10t", "pretrained_cfg": "x"}])
def test_a_classifiers_facts_of_another_kind_are_named(tmp_path, facts):
    save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(facts))
    with pytest.raises(DataError, match=r"config\.json: not as timm writes it"):
        ClassifierFiles(tmp_path, None)


def test_an_architecture_without_a_classifier_is_named(dataset):
    with pytest.raises(ConfigError, match="classifier_arch is 'resnet10t' and there is no classifier"):
        audit(dataset, replace(CONFIG, classifier_arch="resnet10t"))


def test_a_k_al_beyond_all_levels_is_named_before_an_encoder_is_opened(dataset, monkeypatch):
    monkeypatch.delattr("viewkit.pipelines.audit.stage.open_encoder")
    levels = read_pairs(dataset.column("pairs"), 1, 1).num_exits + 1
    with pytest.raises(ConfigError, match=f"k_al is {levels + 1}, and the levels of column 'pairs' end at {levels}"):
        audit(dataset, replace(CONFIG, k_al=float(levels + 1)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"column": "../pairs"}, r"column is '\.\./pairs'"),
    ],
)
def test_impossible_places_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        AuditStage(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": "genview"}, "encoder is 'genview'"),
        ({"encoder": "runs/a/b"}, "encoder is 'runs/a/b'"),
        ({"images": 0}, "images is 0"),
        ({"rounds": 0}, "rounds is 0"),
        ({"k_sc": 1.5}, "k_sc is 1.5"),
        ({"k_al": 0.5}, "k_al is 0.5"),
        ({"visible_share": 0.0}, "visible_share is 0.0"),
        ({"duplicate_iou": 2.0}, "duplicate_iou is 2.0"),
        ({"side_px": 2}, "side_px is 2"),
        ({"gallery": 0}, "gallery is 0"),
        ({"tile_px": 3}, "tile_px is 3"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_impossible_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        AuditConfig(**options)


def test_pairs_that_are_not_there_are_named_with_the_command_that_makes_them(tmp_path):
    lonely = make_images(tmp_path / "d", count=4)
    with pytest.raises(DataError, match=r"audit: .* has no input 'pairs'; make it with 'viewkit score"):
        audit(lonely)


def test_a_column_that_holds_no_pairs_is_refused_by_name(dataset):
    with pytest.raises(DataError, match="column 'images' was written by 'pack' and has no gamma"):
        audit(dataset, column="images")


def test_histograms_of_another_number_of_exits_are_refused(toy, tmp_path):
    other = Dataset(tmp_path / "other")
    copy_without(toy, other, "pairs", "audit")
    write_pairs(other, list(other.column("images").keys()), 4)
    with pytest.raises(RefusedError, match=r"column 'pairs' and the histograms differ in num_exits \(4 against 6\)"):
        audit(other)
