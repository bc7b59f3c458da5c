import math

import pytest
import torch

from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.vit import sincos_positions
from viewkit.shards.errors import ConfigError

SMALL = [("vit_pico_patch8", 32), ("vit_pico_patch4", 32), ("resnet10_narrow", 32), ("resnet18_cifar", 32)]


def views(side_px, count=2):
    return torch.randn(count, 3, side_px, side_px, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "side_px"), [*SMALL, ("vit_tiny_patch16_224", 32), ("resnet50", 64)])
@torch.inference_mode()
def test_features_with_and_without_taps_are_equal(name, side_px):
    backbone = create_backbone(name, side_px).eval()
    x = views(side_px)
    features, taps = backbone.exits(x)
    torch.testing.assert_close(features, backbone(x))
    assert features.shape == (2, backbone.num_features)
    assert [tap.shape for tap in taps] == [(2, width) for width in backbone.exit_widths]


@torch.inference_mode()
def test_a_vit_taps_the_class_token_after_every_block():
    backbone = create_backbone("vit_pico_patch8", 32).eval()
    seen = []
    for block in backbone.trunk.blocks:
        block.register_forward_hook(lambda module, inputs, output: seen.append(output[:, 0]))
    _, taps = backbone.exits(views(32))
    assert backbone.num_exits == len(seen) == 6
    assert all(torch.equal(tap, token) for tap, token in zip(taps, seen, strict=True))


@torch.inference_mode()
def test_a_resnet_has_one_exit_for_each_residual_block():
    backbone = create_backbone("resnet18_cifar", 32).eval()
    seen = []
    for stage in (1, 2, 3, 4):
        for block in getattr(backbone.trunk, f"layer{stage}"):
            block.register_forward_hook(lambda module, inputs, output: seen.append(output.mean(dim=(2, 3))))
    features, taps = backbone.exits(views(32))
    assert backbone.num_exits == len(seen) == 8
    assert all(torch.equal(tap, pooled) for tap, pooled in zip(taps, seen, strict=True))
    torch.testing.assert_close(features, taps[-1])


@torch.inference_mode()
def test_tokens_are_the_patches_in_reading_order():
    vit = create_backbone("vit_pico_patch8", 32).eval()
    assert vit.tokens(views(32)).shape == (2, 16, 128)
    resnet = create_backbone("resnet18_cifar", 32).eval()
    tokens = resnet.tokens(views(32))
    assert tokens.shape == (2, 16, 512)
    torch.testing.assert_close(tokens.mean(dim=1), resnet(views(32)))


def test_the_cifar_stem_keeps_every_position():
    trunk = create_backbone("resnet18_cifar", 32).trunk
    x = trunk.maxpool(trunk.act1(trunk.bn1(trunk.conv1(views(32)))))
    assert x.shape == (2, 64, 32, 32)


def test_weights_depend_on_the_seed_alone_and_leave_the_global_generator_as_it_was():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = create_backbone("vit_pico_patch8", 32, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = create_backbone("vit_pico_patch8", 32, seed=3), create_backbone("vit_pico_patch8", 32, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.trunk.blocks[0].attn.qkv.weight, other.trunk.blocks[0].attn.qkv.weight)


def test_moco_v3_freezes_patches_and_positions():
    frozen = {name for name, p in create_backbone("vit_pico_patch8", 32).named_parameters() if not p.requires_grad}
    assert frozen == {"trunk.pos_embed", "trunk.patch_embed.proj.weight", "trunk.patch_embed.proj.bias"}
    assert all(p.requires_grad for p in create_backbone("vit_pico_patch8", 32, init="timm").parameters())


def test_moco_v3_weights_lie_within_xavier_bounds():
    block = create_backbone("vit_pico_patch8", 32).trunk.blocks[0]
    for weight, fan in ((block.attn.qkv.weight, 128 + 128), (block.mlp.fc1.weight, 128 + 512)):
        bound = math.sqrt(6 / fan)
        assert 0.99 * bound < weight.abs().max() <= bound
    assert not block.attn.qkv.bias.any()


def test_vit_small_has_the_twelve_heads_of_moco_v3():
    assert create_backbone("vit_small_patch16_224", 32).trunk.blocks[0].attn.num_heads == 12
    assert create_backbone("vit_small_patch16_224", 32, init="timm").trunk.blocks[0].attn.num_heads == 6
    assert create_backbone("vit_small_patch16_224", 32, num_heads=3).trunk.blocks[0].attn.num_heads == 3


def test_position_codes_are_sines_and_cosines_of_column_and_row():
    codes = sincos_positions(2, 3, 8, num_prefix=1)[0]
    assert codes.shape == (7, 8) and not codes[0].any()
    row, column = 1, 2
    omega = [1.0, 0.01]
    expected = [math.sin(column * o) for o in omega] + [math.cos(column * o) for o in omega]
    expected += [math.sin(row * o) for o in omega] + [math.cos(row * o) for o in omega]
    torch.testing.assert_close(codes[1 + row * 3 + column], torch.tensor(expected))


@pytest.mark.parametrize(
    ("name", "side_px", "message"),
    [
        ("no_such_net", 32, "arch is 'no_such_net'"),
        ("convnext_tiny", 32, "this is neither"),
        ("vit_pico_patch8", 36, "side_px is 36, which 8 px patches of 'vit_pico_patch8' do not tile"),
        ("resnet18_cifar", 8, "needs views of at least 16 px"),
    ],
)
def test_an_impossible_backbone_is_a_config_error(name, side_px, message):
    with pytest.raises(ConfigError, match=message):
        create_backbone(name, side_px)


@pytest.mark.parametrize("init", ["moco_v3", "timm"])
@torch.inference_mode()
def test_a_vit_takes_views_of_other_sides_by_interpolated_positions(init):
    backbone = create_backbone("vit_pico_patch8", 32, init=init).eval()
    small, large = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 48, 32)
    assert backbone(small).shape == backbone(large).shape == (2, 128)
    assert backbone.tokens(small).shape == (2, 4, 128) and backbone.tokens(large).shape == (2, 24, 128)
    features, taps = backbone.exits(small)
    torch.testing.assert_close(features, backbone(small))
    assert len(taps) == 6


@torch.inference_mode()
def test_taking_other_sides_changes_no_bit_at_a_vits_own_side():
    from timm.models.vision_transformer import VisionTransformer

    backbone = create_backbone("vit_pico_patch8", 32).eval()
    fixed = VisionTransformer(img_size=32, num_classes=0, patch_size=8, embed_dim=128, depth=6, num_heads=4).eval()
    fixed.load_state_dict(backbone.trunk.state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(backbone(x), fixed(x))
