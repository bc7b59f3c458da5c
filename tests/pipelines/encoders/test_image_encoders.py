"""Encoders of timm and open_clip behind the common interface, untrained."""

import hashlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from viewkit.pipelines.encoders.names import encoder_card, encoder_cards
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder, refuse_unused_folder
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

TINY = "timm:test_vit.r160_in1k/random"


def opened(name, file=None, **options):
    return open_encoder(name, Dataset("nowhere"), encoder_weights=file, **options)


def images(count=2, side=70):
    return list(np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def timm_encoder():
    return opened(TINY)


def test_timm_tokens_are_the_normed_patch_tokens(timm_encoder):
    tokens, embedding = timm_encoder.encode_images(images())
    model = timm_encoder.model
    x = torch.stack([timm_encoder.preprocess(image) for image in images()])
    with torch.inference_mode():
        expected = model.forward_features(x)
        torch.testing.assert_close(tokens, expected[:, model.num_prefix_tokens :])
        torch.testing.assert_close(embedding, model(x))
    assert tokens.shape[1] == timm_encoder.grid[0] * timm_encoder.grid[1]


def test_fingerprint_is_that_of_the_weights(timm_encoder):
    again = opened(TINY)
    assert again.fingerprint() == timm_encoder.fingerprint()
    with torch.no_grad():
        next(again.model.parameters()).view(-1)[0] += 1e-3
    assert again.fingerprint() != timm_encoder.fingerprint()


def test_untrained_weights_leave_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    opened(TINY)
    assert torch.equal(torch.rand(3), expected)


def test_an_unknown_model_is_one_line():
    with pytest.raises(ConfigError, match="timm has no model 'vit_nonsense'"):
        opened("timm:vit_nonsense")


def test_weights_that_cannot_be_fetched_are_one_line(monkeypatch):
    import timm

    def offline(*args, **options):
        raise OSError("no connection\nwith details")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(DataError, match=r"cannot be fetched \(no connection\); download them once"):
        opened("timm:test_vit.r160_in1k")


def saved(encoder, path, change=lambda tensors: tensors, prefix=""):
    tensors = {f"{prefix}{name}": tensor.clone() for name, tensor in encoder.model.state_dict().items()}
    save_file(change(tensors), path)
    return path


def test_a_timm_encoder_takes_the_weights_of_a_file(timm_encoder, tmp_path):
    def doubled(tensors):
        return {name: 2 * tensor for name, tensor in tensors.items()} | {"head.weight": torch.zeros(3, 3)}

    file = saved(timm_encoder, tmp_path / "weights.safetensors", doubled)
    found = opened("timm:test_vit.r160_in1k", file)
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
        opened("timm:test_vit.r160_in1k", file)
    assert "\n" not in str(found.value)


def test_a_file_that_is_none_is_one_line(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"no tensors")
    with pytest.raises(DataError, match="cannot be read"):
        opened("timm:test_vit.r160_in1k", tmp_path / "w.safetensors")
    with pytest.raises(DataError, match=r"none\.safetensors: cannot be read"):
        encoder_inputs("timm:test_vit.r160_in1k", None, tmp_path / "none.safetensors")


@pytest.mark.parametrize("name", ["estimator", "runs/mine", "unclip", "timm:test_vit/random"])
def test_a_file_for_an_encoder_that_reads_none_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="reads no file of weights"):
        opened(name, tmp_path / "w.safetensors", weights=tmp_path)
    with pytest.raises(ConfigError, match="reads no file of weights"):
        encoder_inputs(name, tmp_path, tmp_path / "w.safetensors")


def test_a_folder_that_no_encoder_reads_is_refused_and_the_option_for_files_named(tmp_path):
    with pytest.raises(ConfigError, match=r"encoder 'timm:x' reads none; a safetensors file .* with --encoder-weights"):
        refuse_unused_folder("timm:x", tmp_path)
    refuse_unused_folder("unclip", tmp_path)
    with pytest.raises(ConfigError, match="add --weights FOLDER"):
        opened("kandinsky")


@pytest.mark.parametrize("name", ["estimator", "runs/mine", "timm:a.b", "timm:a/random", "open_clip:A/b", "unclip"])
def test_every_form_of_a_name_has_its_card(name):
    assert encoder_card(name) in encoder_cards().values()


@pytest.mark.parametrize(
    "name", ["", "clip", "estimator2", "runs/", "runs/a/b", "timm:", "timm:a/b", "open_clip:A", "unclip/random"]
)
def test_other_names_are_refused_with_all_forms(name):
    words = (
        "it must be estimator, runs/NAME, timm:NAME, open_clip:MODEL/TAG, colour, unclip, kandinsky, ip-adapter, e.g."
    )
    with pytest.raises(ConfigError, match=words) as found:
        encoder_card(name)
    assert str(found.value).startswith(f"encoder is '{name}'; ")


@pytest.mark.parametrize("name", ["timm:resnet18/file", "open_clip:convnext_base_w/file"])
def test_the_old_name_of_a_weights_file_is_refused_with_the_new_option(name):
    with pytest.raises(ConfigError, match="a name no longer ends in /file; give the weights with --encoder-weights"):
        encoder_card(name)


def test_a_precision_is_that_of_the_network_and_of_its_fingerprint(timm_encoder):
    half = opened(TINY, precision="bf16")
    assert {parameter.dtype for parameter in half.model.parameters()} == {torch.bfloat16}
    assert half.features(half.prepare_images(images())).dtype == torch.float32
    differing = {k for k, value in half.fingerprint().items() if value != timm_encoder.fingerprint()[k]}
    assert differing == {"weights", "precision"}


def test_an_encoder_of_a_convolutional_network_takes_the_positions_of_its_last_map_for_tokens():
    encoder = opened("timm:test_resnet/random")
    views = encoder.prepare_images(images())
    tokens, features = encoder.tokens_and_features(views)
    with torch.inference_mode():
        expected = encoder.model.forward_features(views)  # n k h w
    torch.testing.assert_close(encoder.maps(views).permute(0, 3, 1, 2), expected)
    torch.testing.assert_close(tokens, expected.flatten(2).mT)
    torch.testing.assert_close(features, expected.mean(dim=(2, 3)))


@pytest.mark.slow
def test_an_open_clip_encoder_takes_the_weights_of_a_file(tmp_path):
    source = opened("open_clip:ViT-S-16/random")
    file = saved(source, tmp_path / "open_clip_model.safetensors", prefix="visual.")
    found = opened("open_clip:ViT-S-16/local", file)
    assert found.fingerprint()["weights"] == source.fingerprint()["weights"]


@pytest.mark.slow
def test_open_clip_tokens_are_the_normed_patch_tokens():
    encoder = opened("open_clip:ViT-S-16/random")
    tokens, embedding = encoder.encode_images(images())
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
        opened("open_clip:ViT-X/random")
    with pytest.raises(ConfigError, match=r"weights of ViT-H-14 are .*laion2b_s32b_b79k"):
        opened("open_clip:ViT-H-14/nonsense")
    with pytest.raises(ConfigError, match="whose image tower gives no feature map; name a ViT"):
        opened("open_clip:RN50/random")
