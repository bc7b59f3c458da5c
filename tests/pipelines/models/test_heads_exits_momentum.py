import torch
from torch import nn

from viewkit.pipelines.models.exits import ExitProjectors
from viewkit.pipelines.models.heads import moco_v3_predictor, moco_v3_projector, simsiam_predictor, simsiam_projector
from viewkit.pipelines.models.momentum import momentum_copy, move_towards


def kinds(module):
    return [type(layer).__name__ for layer in module]


def test_heads_have_the_layers_of_their_papers():
    hidden = ["Linear", "BatchNorm1d", "ReLU"]
    vit, resnet = moco_v3_projector(8, 32, 4, layers=3), moco_v3_projector(8, 32, 4, layers=2)
    assert kinds(vit) == [*hidden, *hidden, "Linear", "BatchNorm1d"]
    assert kinds(resnet) == [*hidden, "Linear", "BatchNorm1d"]
    assert kinds(moco_v3_predictor(4, 32, end_norm=True)) == [*hidden, "Linear", "BatchNorm1d"]
    assert kinds(simsiam_projector(8, 16)) == [*hidden, *hidden, "Linear", "BatchNorm1d"]
    predictor = simsiam_predictor(16, 4)
    assert kinds(predictor) == [*hidden, "Linear"]
    assert predictor[-1].bias is not None and vit[-2].bias is None and not vit[-1].affine


def test_no_gradient_flows_back_from_the_exits():
    taps = [torch.randn(4, 8, requires_grad=True), torch.randn(4, 6, requires_grad=True)]
    exits = ExitProjectors([8, 6], 5)
    out = exits(taps)
    assert out.shape == (4, 2, 5)
    (out**3).sum().backward()
    assert all(tap.grad is None for tap in taps)
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in exits.parameters())


def test_the_momentum_copy_follows_the_closed_form():
    online = nn.Linear(3, 2)
    twin = momentum_copy(online)
    start = twin.weight.clone()
    with torch.no_grad():
        online.weight.add_(1)
    for _ in range(5):
        move_towards(twin, online, 0.9)
    torch.testing.assert_close(twin.weight, start + (1 - 0.9**5))
    assert not twin.weight.requires_grad


def test_the_momentum_copy_keeps_its_own_batch_statistics():
    online = nn.BatchNorm1d(3)
    twin = momentum_copy(online)
    online(torch.randn(16, 3) + 5)
    move_towards(twin, online, 0.0)
    assert not twin.running_mean.any()
