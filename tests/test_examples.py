"""The programs of docs/examples run on a tiny dataset, and do what they say."""

import importlib.util
import json
import math
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from lightly.loss import NTXentLoss
from PIL import Image
from tiny_chain import photographs

from viewkit.pipelines.export.formats import export_pairs
from viewkit.pipelines.pairs.load import load_pairs
from viewkit.shards.codecs import decode_image, decode_npy
from viewkit.shards.dataset import Dataset

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def example(name):
    """The module, as a reader's own file would be."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dataset(chain):
    return chain.dataset


@torch.no_grad()
def loss_on(network, dataset, **options):
    """Mean NT-Xent on the pairs of epoch 0, which the examples train on too."""
    pairs = load_pairs(dataset, policy="strengthened", side_px=32, batch_size=12, **options)
    losses = [NTXentLoss(0.1)(network(batch.views1), network(batch.views2)).item() for batch in pairs.epoch(0)]
    return sum(losses) / len(losses)


@pytest.mark.slow
def test_a_plain_loop_learns_from_scored_pairs(dataset):
    plain = example("plain_pytorch")
    fresh, trained = (plain.train(dataset.path, "vs2fi", epochs=n, batch_size=12) for n in (0, 4))
    assert loss_on(trained, dataset, select="vs2fi") < loss_on(fresh, dataset, select="vs2fi") - 0.3


@pytest.mark.parametrize("kind", ["random", "generated"])
def test_a_plain_loop_trains_every_weight_on_the_other_kinds_of_pairs(dataset, kind, capsys):
    plain = example("plain_pytorch")
    fresh, trained = (plain.train(dataset.path, kind, epochs=n, batch_size=12) for n in (0, 1))
    assert capsys.readouterr().out.count("loss") == 1
    for before, after in zip(fresh.parameters(), trained.parameters(), strict=True):
        assert bool(after.isfinite().all()) and not torch.equal(before, after)


@pytest.mark.slow
def test_lightly_learns_from_the_pairs(dataset):
    fresh, trained = (example("lightly_simclr").train(dataset.path, epochs=n, batch_size=12) for n in (0, 12))
    assert loss_on(trained, dataset, select="vs2fi") < loss_on(fresh, dataset, select="vs2fi") - 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [("lightning_simclr", {"accelerator": "cpu"}), ("webdataset_simclr", {"workers": 1})]
)
def test_lightning_and_webdataset_learn_from_the_pairs(dataset, name, options, capsys):
    fresh, trained = (example(name).train(dataset.path, epochs=n, batch_size=12, **options) for n in (0, 12))
    assert loss_on(trained, dataset, select="vs2fi") < loss_on(fresh, dataset, select="vs2fi") - 0.3
    assert capsys.readouterr().out.count("loss") == 12


@pytest.mark.slow
def test_lightning_trains_on_the_batches_of_every_epoch_once(dataset, monkeypatch):
    module, seen = example("lightning_simclr"), []
    step = module.SimCLR.training_step
    monkeypatch.setattr(
        module.SimCLR, "training_step", lambda self, b, i: seen.append(b[0].clone()) or step(self, b, i)
    )
    module.train(dataset.path, epochs=3, batch_size=12, accelerator="cpu")
    pairs = load_pairs(dataset, policy="strengthened", side_px=32, batch_size=12, select="vs2fi")
    wanted = [batch.views1 for epoch in range(3) for batch in pairs.epoch(epoch)]
    assert len(seen) == len(wanted) and all(torch.equal(*each) for each in zip(seen, wanted, strict=True))


def test_the_kinds_of_pairs_are_different_pairs_of_the_same_images(dataset):
    options = {"policy": "strengthened", "side_px": 32, "batch_size": 12}
    first = [
        next(load_pairs(dataset, **options, **kind).epoch(0)).views1 for kind in example("plain_pytorch").PAIRS.values()
    ]
    assert not any(torch.equal(a, b) for a, b in combinations(first, 2))


def test_the_loss_of_the_example_is_lightlys_and_log_of_the_others_for_equal_views():
    info_nce, generator = example("plain_pytorch").info_nce, torch.Generator().manual_seed(0)
    z1, z2 = (torch.randn(6, 16, generator=generator) for _ in range(2))
    torch.testing.assert_close(info_nce(z1, z2, tau=0.3), NTXentLoss(temperature=0.3)(z1, z2))
    assert info_nce(torch.ones(4, 3), torch.ones(4, 3)).item() == pytest.approx(math.log(7))


@pytest.mark.slow
def test_pairs_are_placed_by_the_datasets_own_estimator(dataset, tmp_path):
    atlas = tmp_path / "atlas.jsonl"
    export_pairs(dataset, atlas, "embedding-atlas", x="pca1", y="pca2", side_px=16, limit=6)
    rows = [json.loads(line) for line in atlas.read_text().splitlines()]
    places = np.array([[row["x"], row["y"]] for row in rows])
    assert np.abs(places.mean(axis=0)).max() < 1e-4 and places[:, 0].std() >= places[:, 1].std() > 0


def test_plain_webdataset_gives_the_same_images_labels_and_scores(dataset):
    reader = example("read_webdataset")
    images, pairs = dataset.column("images"), dataset.column("pairs")
    found = list(reader.read_images(dataset.path))
    assert [key for key, _, _ in found] == list(images.keys())
    for place, (_, image, label) in enumerate(found):
        fields = images.fields(place)
        assert isinstance(image, Image.Image) and np.array_equal(np.asarray(image.convert("RGB")), decode_image(fields))
        assert label == int(fields["cls"])
    scored = list(reader.read_scores(dataset.path))
    assert [key for key, _, _ in scored] == list(pairs.keys())
    for place, (_, recipes, scores) in enumerate(scored):
        assert np.array_equal(recipes, decode_npy(pairs.fields(place)["recipes.npy"]))
        assert np.array_equal(scores, decode_npy(pairs.fields(place)["scores.npy"]))


def test_plain_webdataset_reads_a_dataset_without_pairs(dataset, tmp_path):
    shutil.copytree(dataset.path / "images", tmp_path / "images")
    reader = example("read_webdataset")
    reader.main(str(tmp_path))


COMMANDS = [
    ["plain_pytorch.py", "vs2fi", "1", "8"],
    ["lightly_simclr.py", "1", "8"],
    ["lightning_simclr.py", "1", "8"],
    ["webdataset_simclr.py", "1", "8", "2"],
    ["read_webdataset.py"],
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_run_as_programs(dataset, command):
    name, *rest = command
    call = [sys.executable, str(EXAMPLES / name), str(dataset.path), *rest]
    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert ("epoch 0: loss" in said) == (name != "read_webdataset.py") and said.strip()


def test_the_picture_of_pairs_shows_one_apart_one_near_and_one_between(tmp_path):
    picture = example("picture_of_pairs")
    apart, near, middling = picture.main(tmp_path / "pairs.png")
    assert apart < 0.05 and near > 0.9 and middling == pytest.approx(0.3, abs=0.02)
    drawn, kept = (Image.open(path) for path in (tmp_path / "pairs.png", EXAMPLES.parent / "pictures" / "pairs.png"))
    gap = np.abs(np.asarray(drawn.convert("RGB"), dtype=float) - np.asarray(kept.convert("RGB"), dtype=float))
    assert drawn.size == kept.size and gap.mean() < 2  # the page shows what the program draws
    assert (EXAMPLES.parent / "pictures" / "pairs.png").stat().st_size < 100_000


@pytest.mark.slow
def test_the_tutorial_goes_from_images_to_two_judged_encoders(tmp_path, capsys):
    for part in ("train", "test"):
        folder = photographs(tmp_path / part)
        for broken in ("class0/empty.png", "class1/text.jpg"):
            (folder / broken).unlink()
    for path in sorted((tmp_path / "test").rglob("*.png"))[::2]:
        path.unlink()
    tutorial = example("tutorial")
    sources = {part: str(tmp_path / part) for part in ("train", "test")}
    found = tutorial.main(tmp_path / "data", **sources, labels="folders", steps=2, batch_size=8)
    assert list(found) == ["random", "chosen"] and all((place / "receipt.json").is_file() for place in found.values())
    said = capsys.readouterr().out
    assert "packed 24 images" in said and "a batch of pairs: (8, 3, 32, 32) and (8, 3, 32, 32)" in said
    assert tutorial.look(Dataset(tmp_path / "data" / "train")).shape == (24, 2, 10)


def test_every_program_of_the_docs_is_started_by_a_test():
    named = {"conf", *(path.stem for path in EXAMPLES.glob("*.py"))}
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("*.py"))
    assert [name for name in sorted(named) if f'"{name}' not in tests and f"{name}.py" not in tests] == []
