"""Encoders of timm and open_clip behind the common face, untrained."""

import numpy as np
import pytest
import torch

from viewkit.pipelines.generate.encoders import OpenClipEncoder, TimmEncoder, create_encoder
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
