"""Encoders of timm and open_clip behind the common face, untrained."""

import hashlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from viewkit.pipelines.generate.encoders import (
    OpenClipEncoder,
    TimmEncoder,
    create_encoder,
    encoder_inputs,
)
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

TINY = "timm:test_vit.r160_in1k/random"


def images(count=2, side=70):
    return list(np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def timm_encoder(tmp_path_factory):
    return create_encoder(TINY, Dataset(tmp_path_factory.mktemp("none")), None, "cpu", "fp32")


def test_timm_tokens_are_the_normed_patch_tokens(timm_encoder):
    tokens, embedding = timm_encoder.tokens_and_embedding(images())
    model = timm_encoder.model
    x = torch.stack([timm_encoder.preprocess(image) for image in images()])
    with torch.inference_mode():
        expected = model.forward_features(x)
        torch.testing.assert_close(tokens, expected[:, model.num_prefix_tokens :])
        torch.testing.assert_close(embedding, model(x))
    assert tokens.shape[1] == timm_encoder.grid[0] * timm_encoder.grid[1]


def test_fingerprint_is_that_of_the_weights(timm_encoder):
    again = TimmEncoder(TINY.removeprefix("timm:"), "cpu")
    assert again.fingerprint() == timm_encoder.fingerprint()
    with torch.no_grad():
        next(again.model.parameters()).view(-1)[0] += 1e-3
    assert again.fingerprint() != timm_encoder.fingerprint()


def test_untrained_weights_leave_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    TimmEncoder(TINY.removeprefix("timm:"), "cpu")
    assert torch.equal(torch.rand(3), expected)


def test_an_unknown_model_is_one_line():
    with pytest.raises(ConfigError, match="timm has no model 'vit_nonsense'"):
        TimmEncoder("vit_nonsense", "cpu")
    with pytest.raises(ConfigError, match="no patch tokens; name a ViT"):
        TimmEncoder("test_resnet/random", "cpu")


def test_weights_that_cannot_be_fetched_are_one_line(monkeypatch):
    import timm

    def offline(*args, **options):
        raise OSError("no connection\nwith details")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(DataError, match=r"cannot be fetched \(no connection\); download them once"):
        TimmEncoder("test_vit.r160_in1k", "cpu")


def saved(encoder, path, change=lambda tensors: tensors, prefix=""):
    tensors = {f"{prefix}{name}": tensor.clone() for name, tensor in encoder.model.state_dict().items()}
    save_file(change(tensors), path)
    return path


def test_a_timm_encoder_takes_the_weights_of_a_file(timm_encoder, tmp_path):
    def doubled(tensors):
        return {name: 2 * tensor for name, tensor in tensors.items()} | {"head.weight": torch.zeros(3, 3)}

    file = saved(timm_encoder, tmp_path / "weights.safetensors", doubled)
    found = create_encoder("timm:test_vit.r160_in1k", Dataset(tmp_path), None, "cpu", "fp32", file)
    expected = doubled(dict(timm_encoder.model.state_dict()))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.model.state_dict().items())
    assert found.fingerprint()["weights"] != timm_encoder.fingerprint()["weights"]
    assert encoder_inputs("timm:test_vit.r160_in1k", None, file) == {
        "encoder_weights": hashlib.sha256(file.read_bytes()).hexdigest()
    }


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("w.safetensors", lambda t: dict(list(t.items())[1:]), r"it lacks 1 of \d+ tensors"),
        ("w.safetensors", lambda t: {n: x.flatten()[:1].clone() for n, x in t.items()}, "in another shape"),
        ("w.bin", lambda t: t, "read from .safetensors only"),
    ],
)
def test_a_file_of_another_network_is_one_line(timm_encoder, tmp_path, name, change, message):
    file = saved(timm_encoder, tmp_path / name, change)
    with pytest.raises(DataError, match=message) as found:
        TimmEncoder("test_vit.r160_in1k", "cpu", file)
    assert "\n" not in str(found.value)


def test_a_file_that_is_none_is_one_line(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"no tensors")
    with pytest.raises(DataError, match="cannot be read"):
        TimmEncoder("test_vit.r160_in1k", "cpu", tmp_path / "w.safetensors")
    with pytest.raises(DataError, match=r"none\.safetensors: cannot be read"):
        encoder_inputs("timm:test_vit.r160_in1k", None, tmp_path / "none.safetensors")


@pytest.mark.parametrize("name", ["estimator", "unclip", "timm:test_vit/random"])
def test_a_file_for_an_encoder_that_reads_none_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="reads no file of weights"):
        create_encoder(name, Dataset(tmp_path), None, "cpu", "fp32", tmp_path / "w.safetensors")


@pytest.mark.slow
def test_an_open_clip_encoder_takes_the_weights_of_a_file(tmp_path):
    source = OpenClipEncoder("ViT-S-16/random", "cpu")
    file = saved(source, tmp_path / "open_clip_model.safetensors", prefix="visual.")
    found = OpenClipEncoder("ViT-S-16/local", "cpu", file)
    assert found.fingerprint()["weights"] == source.fingerprint()["weights"]


@pytest.mark.slow
def test_open_clip_tokens_are_the_normed_patch_tokens():
    encoder = OpenClipEncoder("ViT-S-16/random", "cpu")
    tokens, embedding = encoder.tokens_and_embedding(images())
    visual = encoder.model
    x = torch.stack([encoder.preprocess(image) for image in images()])
    with torch.inference_mode():
        out = visual.forward_intermediates(x, indices=1, normalize_intermediates=True, output_fmt="NLC")
        torch.testing.assert_close(tokens, out["image_intermediates"][0])
        torch.testing.assert_close(embedding, out["image_features"], atol=1e-4, rtol=1e-4)
    assert (encoder.grid, encoder.width) == ((14, 14), 384)


@pytest.mark.slow
def test_unknown_open_clip_names_are_one_line():
    with pytest.raises(ConfigError, match="open_clip has no model 'ViT-X'"):
        OpenClipEncoder("ViT-X/random", "cpu")
    with pytest.raises(ConfigError, match=r"weights of ViT-H-14 are .*laion2b_s32b_b79k"):
        OpenClipEncoder("ViT-H-14/nonsense", "cpu")
    with pytest.raises(ConfigError, match="no patch tokens"):
        OpenClipEncoder("RN50/random", "cpu")
