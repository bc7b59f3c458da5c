"""Convolutions on small maps: gradients of torch's own, and the faster path where it is meant to be taken only."""

import copy

import pytest
import torch
from torch import nn

from viewkit.pipelines.models import convolution
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.convolution import Conv2d, SmallMapConvolution, patches_of, use_small_map_convolutions


def operands(height, width, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, height, width, generator=generator, dtype=dtype).requires_grad_()
    return x, torch.randn(7, 5, 3, 3, generator=generator, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (3, 3), (4, 3)])
def test_gradients_are_torchs(stride, height, width):
    x, weight = operands(height, width)
    output = SmallMapConvolution.apply(x, weight, stride)
    expected = nn.functional.conv2d(x, weight, stride=stride, padding=1)
    torch.testing.assert_close(output, expected, rtol=0, atol=0)
    upstream = torch.randn(output.shape, dtype=output.dtype, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(output, (x, weight), upstream)
    for own, reference in zip(found, torch.autograd.grad(expected, (x, weight), upstream), strict=True):
        torch.testing.assert_close(own, reference)
    assert torch.autograd.gradcheck(lambda *each: SmallMapConvolution.apply(*each, stride), (x, weight))


def test_patches_are_those_of_unfold():
    x, _ = operands(4, 3)
    unfolded = nn.functional.unfold(x, 3, padding=1, stride=2)  # n (i 9) (h w)
    expected = unfolded.view(3, 5, 9, -1).permute(0, 3, 2, 1).reshape(-1, 45)
    torch.testing.assert_close(patches_of(x, 2, 2, 2), expected, rtol=0, atol=0)


def test_a_network_in_bfloat16_has_the_gradients_of_torchs_convolutions(monkeypatch):
    network = create_backbone("resnet10_narrow", 24)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(
                module.weight
            )  # those that end a block are zero at first, and nothing reaches its convolutions
    x = torch.randn(16, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    calls, gradients = [], []
    apply = SmallMapConvolution.apply
    monkeypatch.setattr(SmallMapConvolution, "apply", lambda *each: calls.append(each) or apply(*each))
    for most in (convolution.MOST_POSITIONS, 0):
        monkeypatch.setattr(convolution, "MOST_POSITIONS", most)
        copied = copy.deepcopy(network)
        with torch.autocast("cpu", torch.bfloat16):
            loss = copied(x).square().mean()
        loss.backward()
        gradients.append({name: each.grad for name, each in copied.named_parameters()})
        assert len(calls) == 4  # 64 -> 128 and 128 -> 256 of stride 2, and one each on 3x3 and 2x2 positions
    for name, own in gradients[0].items():
        difference = (own - gradients[1][name]).norm() / gradients[1][name].norm()
        assert difference < 0.03, name  # bfloat16 keeps 8 bits


def test_only_plain_3x3_convolutions_are_replaced_and_weights_keep_their_names():
    network = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1, bias=False),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Conv2d(4, 4, 1, bias=False),
        nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2, bias=False),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect", bias=False),
    )
    names = list(network.state_dict())
    use_small_map_convolutions(network)
    assert [type(each) is Conv2d for each in network] == [True, False, False, False, False, False]
    assert list(network.state_dict()) == names


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_gradients_and_in_float32_torchs_own_runs(dtype, monkeypatch):
    monkeypatch.setattr(SmallMapConvolution, "apply", None)
    layer = Conv2d(4, 4, 3, padding=1, bias=False).to(dtype)
    x = torch.randn(2, 4, 2, 2, dtype=dtype)
    if dtype == torch.bfloat16:
        layer.requires_grad_(False)
    torch.testing.assert_close(layer(x), nn.functional.conv2d(x, layer.weight, padding=1), rtol=0, atol=0)
