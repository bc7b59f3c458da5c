import losses_twins as twin
import pytest
import torch

from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.frameworks.create import FRAMEWORKS, create_framework
from viewkit.pipelines.training.optimisers import create_optimiser, set_rates

SMALL = {"arch": "resnet10_narrow", "hidden": 32, "dim": 16, "batch_size": 6, "seed": 1}


def fresh(framework, **options):
    config = PretrainConfig(framework=framework, **{**SMALL, **options})
    return create_framework(create_backbone(config.arch, 32, seed=1), config, steps=10).train()


def views(seed):
    return torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def test_moco_v3_is_the_pseudocode_of_its_paper():
    framework = fresh("moco_v3")
    with torch.no_grad():
        loss = framework.loss(views(0), views(1))
        q1, q2 = (framework.predictor(framework.projector(framework.backbone(x))) for x in (views(0), views(1)))
        k1, k2 = (framework.momentum_projector(framework.momentum_backbone(x)) for x in (views(0), views(1)))
    assert loss.item() == pytest.approx(twin.moco_v3(q1.tolist(), q2.tolist(), k1.tolist(), k2.tolist(), 0.2), rel=1e-4)


def test_simsiam_is_the_pseudocode_of_its_paper():
    framework = fresh("simsiam")
    with torch.no_grad():
        loss = framework.loss(views(0), views(1))
        z1, z2 = (framework.projector(framework.backbone(x)) for x in (views(0), views(1)))
        p1, p2 = framework.predictor(z1), framework.predictor(z2)
    assert loss.item() == pytest.approx(twin.simsiam(p1.tolist(), p2.tolist(), z1.tolist(), z2.tolist()), rel=1e-4)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_weights_of_one_keep_the_loss_and_a_row_without_weight_has_no_pull(name):
    framework = fresh(name).eval()  # running statistics: rows do not touch each other through batch norm
    plain = framework.loss(views(0), views(1))
    torch.testing.assert_close(framework.loss(views(0), views(1), torch.ones(6)), plain)
    halves = torch.tensor([2.0, 2.0, 2.0, 0.0, 0.0, 0.0])
    rest = 2.0 - halves
    both = framework.loss(views(0), views(1), halves) + framework.loss(views(0), views(1), rest)
    torch.testing.assert_close(both / 2, plain)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_few_steps_on_one_batch_lower_the_loss(name):
    framework = fresh(name)
    optimiser = create_optimiser("sgd", framework.groups(0.0))
    losses = []
    for _ in range(8):
        set_rates(optimiser, rate=0.05, peak=0.05)
        loss = framework.loss(views(0), views(0) + 0.1 * views(1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        framework.step += 1
        framework.after_step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and framework.spread() > 0.3


def test_no_gradient_reaches_the_momentum_encoder_and_it_moves_after_a_step():
    framework = fresh("moco_v3")
    framework.loss(views(0), views(1)).backward()
    momentum = [*framework.momentum_backbone.parameters(), *framework.momentum_projector.parameters()]
    assert all(p.grad is None and not p.requires_grad for p in momentum)
    before = momentum[0].clone()
    with torch.no_grad():
        framework.backbone.trunk.conv1.weight.add_(1)
    framework.step = 1
    framework.after_step()
    assert not torch.equal(momentum[0], before)


def test_the_rate_of_simsiams_predictor_is_fixed():
    framework = fresh("simsiam")
    predictor = {id(p) for p in framework.predictor.parameters()}
    groups = framework.groups(1e-4)
    assert all(group["fixed_lr"] == (id(group["params"][0]) in predictor) for group in groups)
    trained = sum(len(group["params"]) for group in groups)
    assert trained == sum(p.requires_grad for p in framework.parameters())


def test_the_encoder_of_a_framework_is_the_backbone_it_was_given():
    backbone = create_backbone("resnet10_narrow", 32)
    for name in FRAMEWORKS:
        assert create_framework(backbone, PretrainConfig(framework=name, **SMALL), steps=10).encoder is backbone
