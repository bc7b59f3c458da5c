"""A dataset's pairs for other tools: the numbers that are stored, in the forms that those tools read."""

import base64
import builtins
import csv
import importlib
import io
import json
import shutil
import sys
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image
from pyarrow import parquet
from written_pairs import (
    EXITS,
    PAIRS,
    ROUNDS,
    ROWS,
    UNGENERATED,
    UNLABELLED,
    UNSCORED,
    key_of,
    quality_of,
    recipes_of,
    scores_of,
    written_pairs,
)

from viewkit.cli.main import run
from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.preprocess import Preprocess
from viewkit.pipelines.export import atlas, formats
from viewkit.pipelines.export.atlas import SPREAD
from viewkit.pipelines.export.formats import FORMATS, OPENED, export_pairs
from viewkit.pipelines.export.pictures import pictures_of
from viewkit.pipelines.export.table import PairTable, shortest
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.recipe import BOX, SOURCE
from viewkit.shards.artifact import IDENTITY, finish_artifact
from viewkit.shards.codecs import decode_image, encode_json, image_field
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.identity import Identity, write_identity

PAIRS_IN_ALL = (ROWS - 1) * ROUNDS * PAIRS
SCORES = ["semantic_consistency", "alignment_level", "similarity_top"]
SCORES += [f"similarity_exit_{level}" for level in range(1, EXITS + 1)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return written_pairs(tmp_path_factory.mktemp("formats") / "data")


def expected(number, round_, pair):
    """A row of the table, from what the fixture wrote."""
    recipes, scores, key = recipes_of(number)[round_], scores_of(number)[round_, pair], key_of(number)
    views = pair_index(3)[pair]
    boxes, sources = recipes[views][:, BOX], recipes[views, SOURCE]
    found = {"key": key, "label": None if key == UNLABELLED else number % 3, "round": round_, "pair": pair}
    for place, view in enumerate(views):
        found[f"view{place + 1}"] = int(view)
        found[f"source{place + 1}"] = ("original", "generated")[int(sources[place])]
        for side, value in zip(("top", "left", "height", "width"), boxes[place], strict=True):
            found[f"{side}{place + 1}"] = value
    alike = sources[0] == sources[1]
    found["overlap"] = overlap(*(box[None].astype(np.float64) for box in boxes))[0] if alike else None
    found |= dict(zip(SCORES, scores, strict=True))
    quality = quality_of(number)[round_, pair]
    found["quality"] = None if np.isnan(quality) else quality
    missing = key in UNGENERATED
    return found | {"level": None if missing else 100 * (number % 5), "foreground_share": None if missing else 0.5}


def agree(found, wanted):
    assert found.keys() >= wanted.keys()
    for name, value in wanted.items():
        if value is None or isinstance(value, str):
            assert found[name] == value, name
        else:
            assert np.float32(found[name]) == np.float32(value), name


def all_expected():
    for number in range(ROWS):
        if key_of(number) != UNSCORED:
            for round_ in range(ROUNDS):
                for pair in range(PAIRS):
                    yield expected(number, round_, pair)


def read_csv(path):
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            yield {
                name: None if text == "" else text if name in ("key", "source1", "source2") else float(text)
                for name, text in row.items()
            }


def read_jsonl(path):
    return map(json.loads, path.read_text().splitlines())


def read_parquet(path):
    return parquet.read_table(path).to_pylist()


READERS = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}


@pytest.mark.parametrize(
    "ending", ["csv", pytest.param("jsonl", marks=pytest.mark.slow), pytest.param("parquet", marks=pytest.mark.slow)]
)
def test_a_table_holds_every_stored_pair_with_all_that_is_known_of_it(dataset, tmp_path, ending):
    facts = export_pairs(dataset, tmp_path / f"pairs.{ending}")
    assert (facts["rows"], facts["quality"], facts["genview"]) == (PAIRS_IN_ALL, "quality", "genview")
    rows = list(READERS[ending](tmp_path / f"pairs.{ending}"))
    assert len(rows) == PAIRS_IN_ALL
    for row, wanted in zip(rows, all_expected(), strict=True):
        assert list(row) == list(PairTable(dataset).kinds)
        agree(row, wanted)


def test_numbers_are_written_as_short_as_they_read_back(tmp_path):
    values = np.array([0.1, 1 / 3, 1e-8, 12345.678], np.float32)
    assert shortest(values).tolist()[0] == 0.1 and np.array_equal(shortest(values).astype(np.float32), values)


@pytest.mark.slow
def test_parquet_tells_the_kinds_of_its_columns(dataset, tmp_path):
    export_pairs(dataset, tmp_path / "pairs.parquet")
    schema = parquet.read_schema(tmp_path / "pairs.parquet")
    names = ("key", "round", "overlap", "level")
    assert {name: str(schema.field(name).type) for name in names} == {
        "key": "string", "round": "int64", "overlap": "double", "level": "int64",
    }  # fmt: skip


def test_a_limit_takes_the_first_images_and_the_rest_is_never_read(dataset, tmp_path, monkeypatch):
    read = []
    rows = PairTable._image
    monkeypatch.setattr(PairTable, "_image", lambda self, row: read.append(row.key) or rows(self, row))
    assert export_pairs(dataset, tmp_path / "few.csv", limit=3)["rows"] == 3 * ROUNDS * PAIRS
    assert read == [key_of(number) for number in range(3)]


def test_a_repeated_export_changes_nothing_and_another_files_bytes_are_kept(dataset, tmp_path):
    path = tmp_path / "pairs.csv"
    export_pairs(dataset, path)
    before = path.read_bytes()
    export_pairs(dataset, path)
    assert path.read_bytes() == before
    with pytest.raises(RefusedError, match="holds something else; delete it or choose another --to"):
        export_pairs(dataset, path, limit=2)
    export_pairs(dataset, tmp_path / "fo", "fiftyone", limit=2)
    with pytest.raises(RefusedError, match=r"fo is there and is no empty folder"):
        export_pairs(dataset, tmp_path / "fo", "fiftyone", limit=3)
    assert path.read_bytes() == before and sorted(each.name for each in tmp_path.iterdir()) == ["fo", "pairs.csv"]


def test_a_damaged_shard_leaves_no_half_of_an_export(dataset, tmp_path):
    copy = Dataset(shutil.copytree(dataset.path, tmp_path / "data"))
    tar = copy.path / "pairs" / "000003.tar"
    raw = bytearray(tar.read_bytes())
    raw[700] ^= 1
    tar.write_bytes(raw)
    for to, format in [("pairs.csv", None), ("fo", "fiftyone"), ("hf", "huggingface")]:
        with pytest.raises(DataError, match=r"pairs/000003\.tar: damaged"):
            export_pairs(copy, tmp_path / to, format)
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_a_quality_of_other_pairs_is_left_out_unless_asked_for(dataset, tmp_path):
    copy = Dataset(shutil.copytree(dataset.path, tmp_path / "data"))
    shutil.copytree(copy.path / "quality", copy.path / "quality_other")
    document = (copy.path / "quality" / "column.json").read_text()
    shutil.rmtree(copy.path / "quality")
    assert "pairs" in document
    facts = export_pairs(copy, tmp_path / "pairs.csv", limit=1)
    assert facts["quality"] is None and next(read_csv(tmp_path / "pairs.csv"))["quality"] is None
    with pytest.raises(DataError, match="has no column 'quality_none'"):
        export_pairs(copy, tmp_path / "rated.csv", quality="quality_none")


@pytest.mark.slow
def test_embedding_atlas_gets_a_place_and_a_picture_of_every_pair(dataset, tmp_path):
    export_pairs(dataset, tmp_path / "atlas.jsonl", "embedding-atlas", side_px=16)
    rows = list(read_jsonl(tmp_path / "atlas.jsonl"))
    assert len(rows) == PAIRS_IN_ALL
    for row, wanted in zip(rows, all_expected(), strict=True):
        agree(row, wanted)
        assert row["x"] == row["semantic_consistency"]
        assert 0 < abs(row["y"] - row["alignment_level"]) <= SPREAD
        head, _, data = row["picture"].partition(",")
        picture = Image.open(io.BytesIO(base64.b64decode(data)))
        assert head == "data:image/jpeg;base64" and picture.size == (34, 16)
    again = export_pairs(dataset, tmp_path / "other.jsonl", "embedding-atlas", x="overlap", y="quality", limit=3)
    assert again["open"].endswith("--x x --y y")
    for row in read_jsonl(tmp_path / "other.jsonl"):
        assert (row["x"], row["y"]) == (row["overlap"], row["quality"])


class MeanColours(Encoder):
    """Features are the mean colour of a view."""

    def forward(self, x):
        means = x.mean(dim=(2, 3))
        return means[:, None], means


@pytest.mark.slow
def test_principal_components_are_those_of_the_mean_features_of_both_views(dataset, tmp_path, monkeypatch):
    prepared = Preprocess(16, 16, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    encoder = MeanColours(torch.nn.Identity(), prepared, name="toy", device="cpu")
    monkeypatch.setattr(formats, "open_encoder", lambda name, opened: encoder)
    export_pairs(dataset, tmp_path / "a.jsonl", "embedding-atlas", x="pca1", y="pca2", side_px=8)
    features, rows = [], list(read_jsonl(tmp_path / "a.jsonl"))
    images, views = dataset.column("images"), dataset.column("genview")
    for row in rows:  # pair by pair, each view rendered alone
        number, recipes = int(row["key"][3:]), recipes_of(int(row["key"][3:]))[row["round"]]
        pair = []
        for view in (row["view1"], row["view2"]):
            made = recipes[view, SOURCE] > 0
            fields = views.fields(views.place_of[row["key"]]) if made else images.fields(number)
            pixels = torch.from_numpy(decode_image({"png": fields["png"]}))
            shown = encoder.render([pixels], recipes[view : view + 1], torch.zeros(1, dtype=torch.int64))
            pair.append(torch.nn.functional.normalize(shown.mean(dim=(2, 3)).double(), dim=1)[0].numpy())
        features.append((pair[0] + pair[1]) / 2)
    wanted = np.array(features) - np.mean(features, axis=0)
    axes = np.linalg.svd(wanted, full_matrices=False)[2][:2]
    for place, name in enumerate(("pca1", "pca2")):
        found, along = np.array([row[name] for row in rows]), wanted @ axes[place]
        assert min(np.abs(found - along).max(), np.abs(found + along).max()) < 2e-5
        assert all(row["xy"[place]] == row[name] for row in rows)


def test_a_picture_shows_both_views_as_they_are_rendered(dataset):
    image = next(PairTable(dataset).images())
    urls = pictures_of(image, 40)
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(urls[0].partition(",")[2]))).convert("RGB"), float)
    pixels = decode_image(image.fields).astype(float)
    height, width = pixels.shape[:2]
    halves = [pixels[: height // 2, : width // 2], pixels[height // 8 : height * 5 // 8, width // 8 : width * 5 // 8]]
    for view, half in zip((shown[:, :40], shown[:, 42:]), halves, strict=True):
        assert np.abs(view.mean(axis=(0, 1)) - half.mean(axis=(0, 1))).max() < 6


def test_fiftyone_gets_a_sample_per_pair_with_its_crops_as_detections(dataset, tmp_path):
    facts = export_pairs(dataset, tmp_path / "fo", "fiftyone", limit=8)
    samples = json.loads((tmp_path / "fo" / "samples.json").read_text())["samples"]
    assert facts["rows"] == len(samples) == 7 * ROUNDS * PAIRS  # one of the eight was not scored
    assert json.loads((tmp_path / "fo" / "metadata.json").read_text()) == {"media_type": "image"}
    images = dataset.column("images")
    for sample, wanted in zip(samples, islice(all_expected(), len(samples)), strict=True):
        boxes = {each["label"]: each["bounding_box"] for each in sample["views"]["detections"]}
        for number in (1, 2):
            if wanted[f"source{number}"] == "generated":
                assert f"view {number}" not in boxes
                continue
            sides = [wanted[f"{side}{number}"] for side in ("left", "top", "width", "height")]
            assert np.allclose(boxes[f"view {number}"], sides)
        known = {name: wanted[name] for name in ("key", "round", "pair", *SCORES) if wanted[name] is not None}
        agree(sample, known)
        label = sample.get("ground_truth", {}).get("label")
        assert label == (None if wanted["label"] is None else f"kind {wanted['label']}")
        fields = images.fields(images.place_of[wanted["key"]])
        assert (tmp_path / "fo" / sample["filepath"]).read_bytes() == image_field(fields)[1]
    assert len(list((tmp_path / "fo" / "data").iterdir())) == 7


def test_websharts_index_tells_where_every_member_of_every_tar_lies(dataset, tmp_path):
    facts = export_pairs(dataset, tmp_path / "index", "webshart")
    count = 0
    for name in dataset.columns():
        column = dataset.column(name)
        for shard in range(column.num_shards):
            index = json.loads((tmp_path / "index" / name / f"{shard:06d}.json").read_text())
            raw = (dataset.path / name / index["path"]).read_bytes()
            assert index["filesize"] == len(raw)
            stored = {f"{row.key}.{ext}": content for row in column.rows(shard) for ext, content in row.fields.items()}
            found = {file: raw[at["offset"] : at["offset"] + at["length"]] for file, at in index["files"].items()}
            assert found == stored
            count += len(found)
    assert facts["rows"] == count
    assert "--format" not in facts["open"] and str(tmp_path / "index" / "images") in facts["open"]


@pytest.mark.slow
def test_hugging_face_loads_the_folder_and_the_tars_without_a_script(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = importlib.import_module("datasets")  # after the environment is set
    facts = export_pairs(dataset, tmp_path / "hf", "huggingface")
    loaded = datasets.load_dataset(str(tmp_path / "hf"), cache_dir=str(tmp_path / "cache"))["train"]
    assert len(loaded) == facts["rows"] == ROWS
    images = dataset.column("images")
    for number, row in enumerate(loaded):
        assert row["key"] == key_of(number)
        assert np.array_equal(np.asarray(row["image"]), decode_image(images.fields(number)))
        assert (row["generated"] is None) == (row["key"] in UNGENERATED)
        assert row["label"] == (None if row["key"] == UNLABELLED else number % 3)
        if row["key"] == UNSCORED:
            assert row["scores"] is None
            continue
        assert np.array_equal(np.float32(row["recipes"]), recipes_of(number))
        assert np.array_equal(np.float32(row["scores"]), scores_of(number))
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "path: data/train-*.parquet" in card and ", ".join(SCORES) in card
    tars = datasets.load_dataset(
        "webdataset", data_files={"train": f"{dataset.path}/pairs/*.tar"}, cache_dir=str(tmp_path / "cache")
    )["train"]
    assert tars["__key__"][:3] == [key_of(n) for n in range(3)]
    assert np.array_equal(np.float32(tars[1]["scores.npy"]), scores_of(1))


def test_parquet_without_pyarrow_is_one_line_that_says_how_it_is_had(dataset, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    for name in [name for name in sys.modules if name.startswith("pyarrow")]:
        monkeypatch.delitem(sys.modules, name)
    for to, format in [("pairs.parquet", None), ("hf", "huggingface")]:
        with pytest.raises(
            ConfigError, match=r"pip install '\.\[parquet\]', where viewkit's source is, or choose \.csv or \.jsonl"
        ):
            export_pairs(dataset, tmp_path / to, format)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "pairs.xlsx"}, "--format table writes a file ending in .csv or .jsonl or .parquet (folders are"),
        ({"to": "atlas.csv", "format": "embedding-atlas"}, "--format embedding-atlas writes a file ending in .jsonl"),
        ({"to": "x", "format": "coco"}, "--format is 'coco'; choose one of table, embedding-atlas"),
        ({"to": "p.csv", "limit": 0}, "--limit is 0"),
        ({"to": "p.csv", "x": "overlap"}, "--x and --y are for --format embedding-atlas"),
        ({"to": "a.jsonl", "format": "embedding-atlas", "x": "key"}, "--x is 'key', which is no column of numbers"),
        ({"to": "a.jsonl", "format": "embedding-atlas", "y": "pca2"}, "estimator"),
        ({"to": "a.jsonl", "format": "embedding-atlas", "side_px": 4}, "--side-px is 4; it must be 8 to 512"),
        ({"to": "p.csv", "pairs": "pairs_other"}, "has no column 'pairs_other'"),
        ({"to": "p.csv", "pairs": "images"}, "column is 'images'"),
        ({"to": "p.csv", "genview": "views"}, "column of generated views is 'views'"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(dataset, tmp_path, options, message):
    options = {**options, "to": tmp_path / options["to"]}
    with pytest.raises((ConfigError, DataError)) as caught:
        export_pairs(dataset, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_wrote_and_how_it_is_opened(dataset, tmp_path, capsys):
    source, to = str(dataset.path), str(tmp_path / "pairs.csv")
    assert run(["export", source, "--to", to]) == 0
    assert capsys.readouterr().out == (
        f"export: {PAIRS_IN_ALL} pairs of pairs, quality, genview: {to}\n  {OPENED['table']}\n"
    )
    assert run(["export", source, "--to", str(tmp_path / "i"), "--format", "webshart", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "webshart"
    assert set(OPENED) == set(FORMATS)
    assert run(["export", source, "--to", to, "--names", "timm"]) == 2
    assert "--names is for runs" in capsys.readouterr().err
    assert run(["export", str(tmp_path / "none"), "--to", to, "--limit", "3"]) == 2
    assert "--limit is for datasets" in capsys.readouterr().err
    assert run(["export", source, "--to", str(dataset.path / "images" / "p.csv")]) == 3
    assert "which a stage wrote" in capsys.readouterr().err


def test_memory_is_bounded_by_a_shard(dataset, monkeypatch):
    """However many rows are asked for, no shard is read before the one before it is used up."""
    opened = []
    table = PairTable(dataset)
    rows = type(table.sources).rows
    monkeypatch.setattr(type(table.sources), "rows", lambda self, shard: opened.append(shard) or rows(self, shard))
    images = table.images()
    for _ in range(7):
        next(images)
    assert opened == [0, 1]


def test_labels_attached_later_and_their_names_are_in_the_table(tmp_path):
    own = written_pairs(tmp_path / "data")
    labels = encode_json({"classes": {"9": "late"}, "labels": {UNLABELLED: 9, key_of(1): 9}})
    folder = own.path / "labels"
    folder.mkdir()
    (folder / "labels.json").write_bytes(labels)
    identity = Identity("label", 1, {}, {"images": own.column("images").digest}, {})
    write_identity(folder / IDENTITY, identity)
    finish_artifact(folder, identity.digest, {}, ())
    found = {image.key: (image.label, image.class_name) for image in PairTable(own).images()}
    assert found[UNLABELLED] == (9, "late") and found[key_of(1)][0] == 1
    late = [record["label"] for record in PairTable(own).records() if record["key"] == UNLABELLED]
    assert set(late) == {9}


def test_pictures_of_an_atlas_are_resized_as_the_policy_of_the_pairs_says(dataset, tmp_path, monkeypatch):
    image = next(PairTable(dataset).images())
    wanted = {name: pictures_of(image, 24, name)[0] for name in ("bilinear", "bicubic")}
    assert wanted["bilinear"] != wanted["bicubic"]
    for name in wanted:
        monkeypatch.setattr(atlas, "interpolation_of", lambda identity, name=name: name)
        export_pairs(dataset, tmp_path / f"{name}.jsonl", "embedding-atlas", limit=1, side_px=24)
        assert next(iter(read_jsonl(tmp_path / f"{name}.jsonl")))["picture"] == wanted[name]
