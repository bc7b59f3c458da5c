"""Trial: a generator with weights of its own is one file, tests/support/toy_generator.py, and one line of a table."""

import json
import shutil
from hashlib import sha256

import numpy as np
import pytest
import tiny_chain
import torch
from reference.genview_other_pipelines import tiny_vision
from safetensors.torch import save_file

from viewkit.cli.main import run
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.weights.cards import GENERATORS, GeneratorCard
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.dataset import Dataset

# The line of the table.

CARD = GeneratorCard(made_by="toy_generator:Toy", help="a toy", encoder="toy_generator:ENCODER", needs_weights=True)


@pytest.fixture(autouse=True)
def added(monkeypatch):
    monkeypatch.setitem(GENERATORS, "toy", CARD)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    path = tmp_path_factory.mktemp("packed")
    job = tiny_chain.jobs(tiny_chain.photographs(path / "source"))["images"]
    run_stage(job.stage, job.config, Dataset(path / "dataset"), tiny_chain.CPU)
    return path / "dataset"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    tiny_vision().save_pretrained(path / "image_encoder")
    (path / "colour").mkdir()
    (path / "colour" / "config.json").write_text(json.dumps({"width": 32}))
    save_file({"weight": torch.randn(32, 3)}, path / "colour" / "model.safetensors")
    return path


def generate(dataset, *options):
    return run(
        ["generate", str(dataset), "--generator", "toy", "--sample", "20", "--sign", "+", "--device", "cpu", *options]
    )


@pytest.fixture(scope="module")
def made(packed, weights, tmp_path_factory):
    path = shutil.copytree(packed, tmp_path_factory.mktemp("made") / "dataset")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GENERATORS, "toy", CARD)
        assert generate(path, "--weights", str(weights), "--workers", "1") == 0
    return Dataset(path)


def test_the_command_makes_a_view_of_every_image(made):
    views = made.column("genview")
    assert views.num_rows == tiny_chain.IMAGES
    for row in range(views.num_rows):
        facts = decode_json(views.fields(row)["json"])
        image = decode_image({"png": views.fields(row)["png"]})
        assert facts["generator"] == "toy"
        assert facts["red"] == pytest.approx(image[..., 0].mean())
        assert image.shape == (8, 8, 3)


def test_views_depend_on_the_image_through_its_own_encoder(made):
    views = made.column("genview")
    colours = [decode_image({"png": views.fields(i)["png"]}).mean(axis=(0, 1)) for i in range(views.num_rows)]
    assert np.std(colours, axis=0).max() > 5
    assert json.loads((made.path / "foreground" / "foreground.json").read_text())["encoder"]["encoder"] == "toy"


def test_the_identity_holds_the_digest_of_its_weights(made, weights):
    inputs = made.column("genview").identity.inputs
    for name in ("colour/model.safetensors", "image_encoder/model.safetensors"):
        assert inputs[f"weights/{name}"] == sha256((weights / name).read_bytes()).hexdigest()


def test_other_weights_are_refused_for_a_column_that_is_there(made, weights, tmp_path, capsys):
    other = shutil.copytree(weights, tmp_path / "other")
    save_file({"weight": torch.zeros(32, 3)}, other / "colour" / "model.safetensors")
    assert generate(made.path, "--weights", str(other), "--workers", "1") == 3
    assert "weights/colour/model.safetensors" in capsys.readouterr().err


def test_without_weights_it_is_one_line(packed, capsys):
    assert generate(packed) == 2
    assert capsys.readouterr().err == (
        "error: generator 'toy' needs its weights; add --weights FOLDER (docs/generators.md lists where to download "
        "the weights)\n"
    )


def test_a_folder_without_its_file_is_one_line(packed, weights, tmp_path, capsys):
    cut = shutil.copytree(weights, tmp_path / "cut")
    (cut / "colour" / "model.safetensors").unlink()
    assert generate(packed, "--weights", str(cut)) == 1
    assert capsys.readouterr().err == (
        f"error: {cut}/colour: holds no model.safetensors; complete the folder, docs/generators.md lists where to "
        "download the weights\n"
    )
