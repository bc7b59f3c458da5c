"""Folders of weights: what they must hold, their digests, and cards without torch."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import pytest

from viewkit.pipelines.weights.cards import GENERATORS, default_encoder, folder_encoders, load
from viewkit.pipelines.weights.folder import PipelineFolder, require_folder, sha256_of
from viewkit.shards.errors import ConfigError, DataError


class SmallFolder(PipelineFolder):
    title = "small"
    weight_files: ClassVar[Mapping[str, str]] = {"net": "model"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "config.json").write_text("{}")
    (tmp_path / "net" / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_a_folder_without_pipeline_classes_needs_no_index(folder):
    assert SmallFolder(folder).digests() == {
        "weights/net/config.json": sha256(b"{}").hexdigest(),
        "weights/net/model.safetensors": sha256(b"weights").hexdigest(),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", r"net/config\.json: holds no JSON object; download it again, docs/generators\.md lists where"),
        ("{", r"net/config\.json: cannot be read .*; download it again, docs/generators\.md lists where"),
    ],
)
def test_settings_that_are_no_json_object_are_one_line(folder, content, message):
    (folder / "net" / "config.json").write_text(content)
    with pytest.raises(DataError, match=message) as found:
        SmallFolder(folder)
    assert "\n" not in str(found.value)


def test_a_file_is_digested_again_when_it_has_changed(folder):
    path = folder / "net" / "model.safetensors"
    assert sha256_of(path) == sha256(b"weights").hexdigest()
    path.write_bytes(b"others!")
    os.utime(path, ns=(1, 1))  # of the same size: the time tells
    assert sha256_of(path) == sha256(b"others!").hexdigest()


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(DataError, match=r"none\.safetensors: cannot be read \(No such file or directory\)"):
        sha256_of(tmp_path / "none.safetensors")


def test_weights_that_are_not_given_are_asked_for_by_name():
    with pytest.raises(ConfigError, match=r"^encoder 'unclip' needs its weights; add --weights FOLDER \(docs"):
        require_folder(None, "encoder 'unclip'")
    assert require_folder(Path("x"), "encoder 'unclip'") == Path("x")


def test_a_generator_has_its_own_encoder_or_the_estimator():
    assert {name: default_encoder(name) for name in GENERATORS} == {
        "retrieval": "estimator",
        "own": "estimator",
        "unclip": "unclip",
        "kandinsky": "kandinsky",
        "ip-adapter": "ip-adapter",
    }
    assert list(folder_encoders()) == ["unclip", "kandinsky", "ip-adapter"]


def test_a_generator_with_an_encoder_in_its_folder_needs_weights():
    assert all(GENERATORS[name].needs_weights for name in folder_encoders())


@pytest.mark.parametrize("name", GENERATORS)
def test_a_card_names_what_its_module_holds(name):
    card = GENERATORS[name]
    kind = load(card.made_by)
    if card.encoder is not None:
        assert load(card.encoder) is kind.own_encoder
        assert kind.own_encoder.folder is kind.folder_class


def test_cards_folders_and_ids_need_no_torch():
    modules = ", ".join(f"viewkit.pipelines.weights.{name}" for name in ("cards", "folder", "hub", "file"))
    code = f"import json, sys, {modules}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert not {"torch", "diffusers", "transformers", "huggingface_hub", "safetensors"} & set(loaded)
