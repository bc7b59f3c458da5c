import pytest
import torch
from torch import nn

from viewkit.pipelines.models.estimator import Estimator, EstimatorNetwork
from viewkit.pipelines.models.exits import ExitProjectors, FrozenExits
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


def trained_exits(widths, dim=16, seed=0):
    """Exits whose batch norms have seen data of another mean and spread, in evaluation mode."""
    exits = ExitProjectors(widths, dim)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(20):
        exits([3 * torch.randn(64, width, generator=generator) + 1 for width in widths])
    return exits.eval().requires_grad_(False)


def test_frozen_exits_equal_the_plain_ones_in_evaluation_mode():
    taps = [2 * torch.randn(9, 24) + 1 for _ in range(5)]
    exits = trained_exits([24] * 5)
    frozen = FrozenExits(exits)
    assert frozen.alike and frozen(taps).shape == (9, 5, 16)
    torch.testing.assert_close(frozen(taps), exits(taps), rtol=0, atol=1e-5)


def test_frozen_exits_of_differing_widths_are_the_plain_ones():
    taps = [torch.randn(9, width) for width in (8, 8, 12)]
    exits = trained_exits([8, 8, 12])
    assert torch.equal(FrozenExits(exits)(taps), exits(taps))


def test_training_the_exits_further_does_not_reach_frozen_ones():
    taps = [torch.randn(9, 8) for _ in range(2)]
    exits = trained_exits([8, 8])
    frozen = FrozenExits(exits)
    before = frozen(taps)
    exits.train()([tap + 7 for tap in taps])
    assert torch.equal(frozen(taps), before)


def small_estimator(precision="fp32", arch="vit_pico_patch8"):
    facts = {"side_px": 32, "mean": [0.5] * 3, "std": [0.5] * 3, "tau": 0.2}
    network = EstimatorNetwork(arch, 32, init="timm", hidden=32, dim=16, seed=3)
    views = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        network(views)  # batch norms away from mean 0 and variance 1
    return Estimator(network, facts, precision=precision)


def views_of(count):
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("arch", ["vit_pico_patch8", "resnet10_narrow"])
def test_the_estimators_embeddings_equal_the_plain_networks(arch):
    estimator, views = small_estimator(arch=arch), views_of(37)
    top, exits = estimator.network(views)
    found = estimator.embed(views)
    assert found.top.dtype == found.exits.dtype == torch.float32
    torch.testing.assert_close(found.top, nn.functional.normalize(top, dim=-1), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.exits, nn.functional.normalize(exits, dim=-1), rtol=0, atol=1e-5)


def test_on_a_cpu_views_pass_in_equal_parts_and_none_at_all_gives_none():
    estimator = small_estimator()
    views = views_of(96)
    whole = estimator.embed(views)
    for part in range(3):
        alone = estimator.embed(views[32 * part : 32 * part + 32])
        assert torch.equal(alone.top, whole.top[32 * part : 32 * part + 32])
        assert torch.equal(alone.exits, whole.exits[32 * part : 32 * part + 32])
    assert estimator.embed(views[:0]).exits.shape == (0, 6, 16)


def test_bf16_embeddings_are_near_those_of_fp32_and_of_unit_norm_in_fp32():
    fp32, bf16 = (small_estimator(precision).embed(views_of(32)) for precision in ("fp32", "bf16"))
    for exact, short in zip(fp32, bf16, strict=True):
        assert short.dtype == torch.float32
        torch.testing.assert_close(short.norm(dim=-1), torch.ones(short.shape[:-1]), rtol=0, atol=1e-6)
        assert 1e-4 < (exact - short).abs().max() < 0.05


def test_a_vits_taps_do_not_keep_the_blocks_outputs_alive():
    backbone = small_estimator().network.backbone
    with torch.inference_mode():
        _, taps = backbone.exits(views_of(4))
    assert all(tap.untyped_storage().nbytes() == tap.nbytes for tap in taps)
