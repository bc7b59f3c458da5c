"""The stage `foreground`: which images and patches its fit leaves out, and what it says of the result."""

import json
import shutil

import numpy as np
import pytest
import torch
from reference.genview_worlds import CPU, discs_dataset
from reference.reference_genview import first_component

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.foreground.config import ForegroundConfig
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.shards.codecs import decode_image
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError

CONFIG = ForegroundConfig(encoder="estimator", sample=20, sign="+", index=False)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return discs_dataset(tmp_path_factory.mktemp("discs"), images=24)


@pytest.fixture
def fresh(packed, tmp_path):
    return Dataset(shutil.copytree(packed.path, tmp_path / "dataset"))


def tokens_of(dataset, keys):
    encoder, images = open_encoder("estimator", dataset), dataset.column("images")
    pixels = [decode_image(images.fields(images.place_of[key])) for key in keys]
    return encoder.encode_images(pixels)[0].double().numpy()


def fit(dataset, config=CONFIG, batch_size=7, progress=None):
    return run_stage(ForegroundStage(batch_size=batch_size), config, dataset, CPU, progress or Silent()).numbers


def test_the_direction_is_numpys_over_all_tokens_of_the_smallest_keys(fresh):
    fit(fresh)
    found = Foreground.read(fresh.artifact("foreground")).direction.numpy()
    tokens = tokens_of(fresh, smallest(fresh.column("images").keys(), 20))
    expected = first_component(tokens.reshape(-1, tokens.shape[2]))
    assert np.linalg.norm(found - expected * np.sign(found @ expected)) < 1e-5


def test_the_threshold_leaves_the_share_asked_for(fresh):
    numbers = fit(fresh, ForegroundConfig(encoder="estimator", sample=20, sign="+", share=0.35, index=False))
    assert numbers["foreground_share"] == pytest.approx(np.floor(0.35 * 20 * 64) / (20 * 64))


def spoil(monkeypatch, shown):
    """Make the encoder give NaN for one image."""
    encode = Encoder.tokens_and_features

    def spoiled(self, x):
        tokens, features = encode(self, x)
        bad = torch.stack([(each == shown).all() for each in x])
        return tokens.masked_fill(bad[:, None, None], torch.nan), features

    monkeypatch.setattr(Encoder, "tokens_and_features", spoiled)


def test_an_image_whose_tokens_are_not_finite_is_left_out_and_counted(fresh, monkeypatch):
    keys = smallest(fresh.column("images").keys(), 20)
    images = fresh.column("images")
    encoder = open_encoder("estimator", fresh)
    spoil(monkeypatch, encoder.prepare_images([decode_image(images.fields(images.place_of[keys[3]]))])[0])
    numbers = fit(fresh)
    assert (numbers["images"], numbers["non_finite"], numbers["undecodable"]) == (19, 1, 0)
    monkeypatch.undo()
    found = Foreground.read(fresh.artifact("foreground")).direction.numpy()
    tokens = tokens_of(fresh, [key for key in keys if key != keys[3]])
    expected = first_component(tokens.reshape(-1, tokens.shape[2]))
    assert abs(found @ expected) > 1 - 1e-9


def test_an_encoder_that_often_fails_stops_the_fit(fresh, monkeypatch):
    def broken(self, x):
        return torch.full((len(x), 64, 128), torch.nan), torch.zeros(len(x), 128)

    monkeypatch.setattr(Encoder, "tokens_and_features", broken)
    with pytest.raises(DataError, match="outputs for 20 of 20 images are not finite; use --precision fp32"):
        fit(fresh)


class Heard(Silent):
    def __init__(self):
        self.messages = []

    def message(self, text):
        self.messages.append(text)


def test_a_doubtful_component_is_told(fresh, monkeypatch):
    monkeypatch.setattr("viewkit.pipelines.foreground.component.MIN_RATIO", 1e9)
    progress = Heard()
    fit(fresh, progress=progress)
    assert any("times the second" in text and "masks.png" in text for text in progress.messages)


def test_the_evidence_is_kept(fresh):
    numbers = fit(fresh)
    kept = json.loads(fresh.artifact("foreground").path("foreground.json").read_bytes())
    assert {"t", "skewness", "flat_patches", "released_sign", "eigenvalue_ratio", "largest_channel_share"} <= set(kept)
    assert kept["released_sign"] is None
    assert 0 <= numbers["flat_patches"] < 1
