import torch

from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.training.optimisers import create_optimiser, parameter_groups, set_rates


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
