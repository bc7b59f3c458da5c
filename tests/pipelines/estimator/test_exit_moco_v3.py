import pytest
import reference_losses as reference
import torch

from viewkit.pipelines.estimator.model import ExitMoCoV3
from viewkit.pipelines.losses.info_nce import symmetric_info_nce
from viewkit.pipelines.models.estimator import EstimatorNetwork
from viewkit.pipelines.training.schedules import cosine_momentum


def fresh(arch="vit_pico_patch8"):
    network = EstimatorNetwork(arch, 32, init="moco_v3", hidden=32, dim=16, seed=1)
    return ExitMoCoV3(network, hidden=32, dim=16, tau=0.2, momentum=0.9, steps=10, seed=1).train()


def views(seed):
    return torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def gradients(framework, loss):
    framework.zero_grad()
    loss.backward()
    names = ("network.backbone.", "network.projector.", "predictor.")
    return {
        name: p.grad.clone() for name, p in framework.named_parameters() if name.startswith(names) and p.requires_grad
    }


@pytest.mark.parametrize("arch", ["vit_pico_patch8", "resnet10_narrow"])
def test_backbone_gradients_are_bit_equal_with_and_without_exits(arch):
    with_exits, plain = fresh(arch), fresh(arch)
    ours = gradients(with_exits, with_exits.loss([views(0), views(1)]))
    z1, z2 = (plain.network.projector(plain.network.backbone.exits(x)[0]) for x in (views(0), views(1)))
    with torch.no_grad():
        twin_network = plain.momentum_network
        k1, k2 = (twin_network.projector(twin_network.backbone.exits(x)[0]) for x in (views(0), views(1)))
    theirs = gradients(plain, symmetric_info_nce(plain.predictor(z1), plain.predictor(z2), k1, k2, 0.2).mean())
    assert ours.keys() == theirs.keys() and ours
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_loss_is_that_of_moco_v3_plus_equation_4_for_every_exit():
    framework = fresh()
    with torch.no_grad():
        loss = framework.loss([views(0), views(1)])
        (z1, e1), (z2, e2) = framework.network(views(0)), framework.network(views(1))
        (k1, f1), (k2, f2) = framework.momentum_network(views(0)), framework.momentum_network(views(1))
        q1, q2 = framework.predictor(z1), framework.predictor(z2)
    top = reference.moco_v3(q1.tolist(), q2.tolist(), k1.tolist(), k2.tolist(), 0.2)
    exits = [
        reference.moco_v3(*(part[:, level].tolist() for part in (e1, e2, f1, f2)), 0.2) for level in range(e1.shape[1])
    ]
    assert loss.item() == pytest.approx(top + sum(exits), rel=1e-4)
    numbers = framework.numbers()
    assert numbers["loss_top"] == pytest.approx(top, rel=1e-4)
    assert [numbers[f"loss_exit_{level}"] for level in range(1, 7)] == pytest.approx(exits, rel=1e-4)


def test_only_the_base_encoder_is_trained():
    framework = fresh()
    trained = {id(p) for group in framework.groups(0.1) for p in group["params"]}
    assert not any(id(p) in trained for p in framework.momentum_network.parameters())
    assert all(id(p) in trained for p in framework.network.parameters() if p.requires_grad)


def test_the_momentum_encoder_moves_after_the_step():
    framework = fresh()
    before = framework.momentum_network.projector[0].weight.clone()
    with torch.no_grad():
        framework.network.projector[0].weight.add_(1)
    framework.step = 4
    framework.after_step()
    moved = 1 - cosine_momentum(4, steps=10, start=0.9)
    torch.testing.assert_close(framework.momentum_network.projector[0].weight, before + moved)
