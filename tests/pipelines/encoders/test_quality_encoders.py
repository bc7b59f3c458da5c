import json

import open_clip
import pytest
import timm
import torch
from safetensors.torch import save_file
from vs2fi_world import make_estimator, make_images

from viewkit.pipelines.encoders.libraries import needs_quick_gelu
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

TEXT = {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1}
CONVNEXT = {"timm_model_name": "test_convnext", "timm_model_pretrained": False, "timm_pool": "", "timm_proj": "linear"}
TOWERS = {
    "tiny-convnext": {**CONVNEXT, "timm_drop": 0.0, "timm_drop_path": 0.5, "image_size": 96},
    "tiny-resnet": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8},
    "tiny-vit": {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8},
}


@pytest.fixture(scope="module", autouse=True)
def towers(tmp_path_factory):
    """Two small models that open_clip knows by name for as long as these tests run."""
    folder = tmp_path_factory.mktemp("configs")
    for name, vision in TOWERS.items():
        (folder / f"{name}.json").write_text(json.dumps({"embed_dim": 16, "vision_cfg": vision, "text_cfg": TEXT}))
    paths, configs = list(open_clip.factory._MODEL_CONFIG_PATHS), dict(open_clip.factory._MODEL_CONFIGS)
    open_clip.add_model_config(folder)
    yield
    open_clip.factory._MODEL_CONFIG_PATHS[:] = paths
    open_clip.factory._MODEL_CONFIGS.clear()
    open_clip.factory._MODEL_CONFIGS.update(configs)


def encoder(name, file=None, dataset=None, **options):
    return open_encoder(name, dataset or Dataset("nowhere"), encoder_weights=file, **options)


def views(side_px, count=3):
    return torch.randn(count, 3, side_px, side_px, generator=torch.Generator().manual_seed(0))


def test_drop_path_of_an_open_clip_network_is_off():
    ours = encoder("open_clip:tiny-convnext/random")
    assert not any(module.training for module in ours.model.modules())
    x = views(96)
    assert torch.equal(ours.maps(x), ours.maps(x))
    ours.model.train()
    assert not torch.equal(ours.maps(x), ours.maps(x)), "in training mode the same network draws"


def test_the_map_is_the_last_stages_output_before_pooling_and_head_norm():
    ours = encoder("open_clip:tiny-convnext/random")
    x = views(96)
    expected = ours.model.trunk.stages(ours.model.trunk.stem(x))  # m k h w
    maps = ours.maps(x)
    assert maps.shape[1:3] == ours.grid == expected.shape[2:] == (3, 3)
    torch.testing.assert_close(maps.permute(0, 3, 1, 2), expected)


def test_views_are_to_be_normalised_with_the_networks_own_numbers():
    ours = encoder("open_clip:tiny-convnext/random")
    assert ours.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))
    assert ours.std == pytest.approx((0.26862954, 0.26130258, 0.27577711))
    assert encoder("timm:test_convnext/random").mean == (0.5, 0.5, 0.5)


def test_a_convolutional_network_takes_other_sides_and_a_vit_does_not():
    assert encoder("open_clip:tiny-convnext/random", side_px=64).grid == (2, 2)
    with pytest.raises(ConfigError, match="takes no views of 40 px"):
        encoder("open_clip:tiny-vit/random", side_px=40)
    with pytest.raises(ConfigError, match="takes no views of 40 px"):
        encoder("timm:test_vit/random", side_px=40)


@pytest.mark.parametrize(("name", "side_px", "grid"), [("open_clip:tiny-vit", 32, 4), ("timm:test_vit", 160, 10)])
def test_a_vit_gives_its_patch_tokens_in_reading_order(name, side_px, grid):
    """Painting one corner changes the token of that corner most."""
    ours = encoder(f"{name}/random")
    assert ours.side_px == side_px and ours.grid == (grid, grid)
    x = torch.zeros(1, 3, side_px, side_px)
    painted = x.clone()
    patch = side_px // grid
    painted[..., :patch, -patch:] = views(patch, 1)
    change = (ours.maps(painted) - ours.maps(x)).norm(dim=3)[0]
    assert change.argmax() == grid - 1


def test_the_estimator_gives_its_own_tokens_and_takes_its_own_side(tmp_path):
    dataset = make_images(tmp_path / "d", count=3)
    estimator = make_estimator(dataset)
    ours = encoder("estimator", dataset=dataset)
    assert (ours.side_px, ours.grid) == (32, (4, 4))
    tokens = estimator.network.backbone.tokens(views(32))
    torch.testing.assert_close(ours.maps(views(32)).flatten(1, 2), tokens)
    with pytest.raises(ConfigError, match="side_px is 64, and encoder 'estimator' takes 32; leave it out"):
        encoder("estimator", dataset=dataset, side_px=64)


def test_weights_come_from_a_local_file(tmp_path):
    path = tmp_path / "weights.safetensors"
    torch.manual_seed(5)
    model = open_clip.create_model("tiny-convnext")
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    ours = encoder("open_clip:tiny-convnext/local", path)
    torch.testing.assert_close(ours.maps(views(96)).permute(0, 3, 1, 2), model.visual.trunk.eval().stages(
        model.visual.trunk.stem(views(96))
    ))  # fmt: skip
    assert ours.fingerprint() != encoder("open_clip:tiny-convnext/random").fingerprint() | {"encoder": ours.name}
    with pytest.raises(DataError, match="weights of another network: it lacks"):
        encoder("open_clip:tiny-vit/local", path)
    path.write_bytes(b"no weights")
    with pytest.raises(DataError, match="cannot be read"):
        encoder("open_clip:tiny-convnext/local", path)
    with pytest.raises(DataError, match="cannot be read"):
        encoder("timm:test_convnext", path)


@pytest.mark.parametrize("downloaded", [True, False])
def test_weights_that_were_trained_with_quick_gelu_get_it(tmp_path, monkeypatch, downloaded):
    """Published under the tag, or from a file under the tag's name; and no other encoder's identity changes."""
    path = tmp_path / "weights.safetensors"
    torch.manual_seed(5)
    trained = open_clip.create_model("tiny-vit", force_quick_gelu=True)
    save_file({name: value.contiguous() for name, value in trained.state_dict().items()}, path)
    tags = {"quick": {"url": "x", "quick_gelu": True}, "plain": {"url": "x"}}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny-vit", tags)
    monkeypatch.setattr(open_clip.factory, "download_pretrained", lambda *_, **__: str(path))
    found = {tag: encoder(f"open_clip:tiny-vit/{tag}", None if downloaded else path) for tag in tags}
    for tag, kind in (("quick", open_clip.transformer.QuickGELU), ("plain", torch.nn.GELU)):
        blocks = found[tag].model.transformer.resblocks
        assert [type(block.mlp.gelu) for block in blocks] == [kind, kind]
    quick, plain = found["quick"].fingerprint(), found["plain"].fingerprint()
    assert quick == {**plain, "encoder": "open_clip:tiny-vit/quick", "activation": "quick_gelu"}
    assert "activation" not in plain
    trained.visual.output_tokens = True
    torch.testing.assert_close(found["quick"].tokens(views(32)), trained.eval().visual(views(32))[1].detach())


def test_a_file_is_normalised_like_the_weights_of_its_tag(tmp_path, monkeypatch):
    path = tmp_path / "weights.safetensors"
    save_file(open_clip.create_model("tiny-vit").state_dict(), path)
    half = (0.5, 0.5, 0.5)
    tags = {"half": {"url": "x", "mean": half, "std": half}, "plain": {"url": "x"}}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny-vit", tags)
    monkeypatch.setattr(open_clip.factory, "download_pretrained", lambda *_, **__: str(path))
    for file in (None, path):
        ours = encoder("open_clip:tiny-vit/half", file)
        assert (ours.mean, ours.std) == (half, half) == (ours.preprocess.mean, ours.preprocess.std)
    assert encoder("open_clip:tiny-vit/plain", path).mean == encoder("open_clip:tiny-vit/random").mean != half


@pytest.mark.parametrize(
    ("name", "tag", "forced"),
    [
        ("ViT-B-32", "openai", True),
        ("ViT-H-14", "dfn5b", True),
        ("ViT-B-32-quickgelu", "openai", False),
        ("ViT-B-32", "laion2b_s34b_b79k", False),
        ("ViT-B-32", "random", False),
        ("roberta-ViT-B-32", "laion2b_s12b_b32k", False),  # its architecture has QuickGELU
    ],
)
def test_quick_gelu_is_forced_where_open_clip_would_warn(name, tag, forced):
    assert needs_quick_gelu(name, tag) is forced


def test_a_published_file_of_timm_fits_although_it_holds_a_classifier_too(tmp_path):
    path = tmp_path / "weights.safetensors"
    torch.manual_seed(5)
    model = timm.create_model("test_convnext", num_classes=7).eval()
    save_file(model.state_dict(), path)
    ours = encoder("timm:test_convnext", path)
    side_px = ours.side_px
    torch.testing.assert_close(
        ours.maps(views(side_px)).permute(0, 3, 1, 2), model.forward_features(views(side_px)).detach()
    )
    with pytest.raises(DataError, match="weights of another network: it lacks"):
        encoder("timm:test_vit", path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("clip", "encoder is 'clip'; it must be estimator"),
        ("open_clip:ViT-H-14", "it must be estimator, runs/NAME, timm:NAME, open_clip:MODEL/TAG"),
        ("timm:", "it must be estimator"),
        ("open_clip:convnext_bse_w/x", "open_clip has no model 'convnext_bse_w'"),
        ("open_clip:convnext_base_w/x", "weights of convnext_base_w are laion2b_s13b_b82k, laion2b"),
        ("timm:resnet17", "timm has no model 'resnet17'"),
        ("timm:resnet18/mine", "encoder is 'timm:resnet18/mine'; it must be"),
        ("open_clip:tiny-resnet/random", "gives no feature map"),
        ("timm:resnet18/file", "give the weights with --encoder-weights FILE and the name as timm:NAME"),
    ],
)
def test_an_encoder_that_cannot_be_made_is_one_clear_line(name, words):
    with pytest.raises(ConfigError) as caught:
        encoder(name)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("option", "words"), [({"side_px": 8}, "side_px is 8"), ({"sample": 9}, "sample is 9")])
def test_impossible_options_are_refused(option, words):
    with pytest.raises(ConfigError, match=words):
        QualityConfig(**option)


@pytest.mark.slow
def test_the_papers_network_gives_seven_by_seven_by_1024():
    ours = encoder("open_clip:convnext_base_w/random")
    x = views(224, 1)
    assert ours.side_px == 224 and ours.grid == (7, 7)
    assert ours.maps(x).shape == (1, 7, 7, 1024)
    assert torch.equal(ours.maps(x), ours.maps(x))
