import torch

from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.training.optimisers import create_optimiser, decay_all, parameter_groups, set_rates


def test_biases_norms_and_class_tokens_do_not_decay_and_frozen_weights_are_left_out():
    backbone = create_backbone("vit_pico_patch8", 32)
    decayed, free = parameter_groups(backbone, weight_decay=0.1)
    names = {id(parameter): name for name, parameter in backbone.named_parameters()}
    assert {names[id(p)] for p in decayed["params"]} == {
        name for name, p in backbone.named_parameters() if p.requires_grad and p.ndim >= 2 and "cls_token" not in name
    }
    assert "trunk.cls_token" in {names[id(p)] for p in free["params"]}
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    trained = sum(p.requires_grad for p in backbone.parameters())
    assert len(decayed["params"]) + len(free["params"]) == trained


def test_sgd_takes_the_closed_form_step():
    weight = torch.nn.Parameter(torch.tensor([[2.0]]))
    groups = [{"params": [weight], "weight_decay": 0.5, "fixed_lr": False}]
    optimiser = create_optimiser("sgd", groups)
    set_rates(optimiser, rate=0.1, peak=1.0)
    weight.grad = torch.tensor([[3.0]])
    optimiser.step()  # v = 3 + 0.5 * 2 = 4
    torch.testing.assert_close(weight.data, torch.tensor([[2.0 - 0.1 * 4]]))
    weight.grad = torch.tensor([[0.0]])
    optimiser.step()  # v = 0.9 * 4 + 0.5 * 1.6
    torch.testing.assert_close(weight.data, torch.tensor([[1.6 - 0.1 * (3.6 + 0.8)]]))


def test_a_fixed_rate_stays_at_the_peak():
    layer = torch.nn.Linear(2, 2)
    groups = [*parameter_groups(layer, weight_decay=0.0, fixed_lr=True)]
    optimiser = create_optimiser("sgd", groups)
    set_rates(optimiser, rate=0.1, peak=1.0)
    assert [group["lr"] for group in optimiser.param_groups] == [1.0, 1.0]


def test_lars_takes_steps_as_long_as_a_share_of_the_weights():
    layer = torch.nn.Linear(3, 2)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    optimiser = create_optimiser("lars", parameter_groups(layer, weight_decay=0.5))
    set_rates(optimiser, rate=2.0, peak=2.0)
    gradients = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, 1.0]]), torch.tensor([1.0, -4.0])
    buffers = torch.zeros_like(weight), torch.zeros_like(bias)
    for _ in range(2):
        layer.weight.grad, layer.bias.grad = gradients[0].clone(), gradients[1].clone()
        optimiser.step()
        g = gradients[0] + 0.5 * weight  # the loop of MoCo v3, VICReg and Barlow Twins
        buffers = 0.9 * buffers[0] + g * 0.001 * weight.norm() / g.norm(), 0.9 * buffers[1] + gradients[1]
        weight, bias = weight - 2.0 * buffers[0], bias - 2.0 * buffers[1]
        torch.testing.assert_close(layer.weight.data, weight)
        torch.testing.assert_close(layer.bias.data, bias)
        assert torch.equal(layer.weight.grad, gradients[0]), "gradients are left as they are"


def test_lars_leaves_zero_weights_and_zero_gradients_finite():
    still, empty = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.zeros(2, 2))
    groups = [{"params": [still, empty], "weight_decay": 0.0, "fixed_lr": False, "decays": True}]
    optimiser = create_optimiser("lars", groups)
    set_rates(optimiser, rate=0.1, peak=0.1)
    still.grad, empty.grad = torch.zeros(2, 2), torch.ones(2, 2)
    optimiser.step()
    assert torch.equal(still.data, torch.ones(2, 2))
    torch.testing.assert_close(empty.data, torch.full((2, 2), -0.1))


def test_weights_without_a_gradient_rest():
    moving, resting = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2, 2))
    for name in ("sgd", "lars", "adamw"):
        groups = [{"params": [moving, resting], "weight_decay": 0.1, "fixed_lr": False, "decays": True}]
        optimiser = create_optimiser(name, groups)
        set_rates(optimiser, rate=0.1, peak=0.1)
        moving.grad, before = torch.ones(2, 2), moving.detach().clone()
        optimiser.step()
        assert torch.equal(resting.data, torch.ones(2, 2)) and not torch.equal(moving.data, before)


def test_a_scheduled_weight_decay_reaches_what_decays_alone():
    layer = torch.nn.Linear(2, 2)
    optimiser = create_optimiser("adamw", parameter_groups(layer, weight_decay=0.04))
    set_rates(optimiser, rate=0.1, peak=1.0, weight_decay=0.2)
    assert [group["weight_decay"] for group in optimiser.param_groups] == [0.2, 0.0]
    set_rates(optimiser, rate=0.1, peak=1.0)
    assert [group["weight_decay"] for group in optimiser.param_groups] == [0.2, 0.0]


def test_biases_and_norms_may_learn_at_a_share_of_the_rate():
    layer = torch.nn.Linear(2, 2)
    optimiser = create_optimiser("lars", parameter_groups(layer, weight_decay=0.0, bias_rate=0.25))
    set_rates(optimiser, rate=0.8, peak=1.0)
    assert [group["lr"] for group in optimiser.param_groups] == [0.8, 0.2]


def test_all_weights_decay_where_the_released_code_tells_none_apart():
    groups = decay_all(parameter_groups(torch.nn.LayerNorm(4), weight_decay=0.1), 0.1)
    assert [group["weight_decay"] for group in groups] == [0.1] and len(groups[0]["params"]) == 2
    optimiser = create_optimiser("adamw", groups)
    set_rates(optimiser, rate=0.1, peak=0.1, weight_decay=0.3)
    assert optimiser.param_groups[0]["weight_decay"] == 0.3
    assert resolve(PretrainConfig(framework="simsiam", arch="resnet18_cifar")).decay_all
    assert not resolve(PretrainConfig(framework="byol", arch="resnet18_cifar")).decay_all
