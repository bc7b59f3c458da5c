import copy

import pytest
import torch

from viewkit.pipelines.estimator.model import ExitMoCoV3
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.estimator import EstimatorNetwork
from viewkit.pipelines.training.optimisers import create_optimiser, set_rates
from viewkit.pipelines.training.step import Stepper, check_micro_batch
from viewkit.shards.errors import ConfigError


def fresh():
    network = EstimatorNetwork("vit_pico_patch8", 32, init="moco_v3", hidden=32, dim=16, seed=1)
    return ExitMoCoV3(network, hidden=32, dim=16, tau=0.2, momentum=0.9, steps=10, seed=1).train()


def views(seed, num_rows=8):
    return torch.randn(num_rows, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def stepped(micro_batch, precision="fp32", weights=None):
    framework = fresh()
    optimiser = create_optimiser("adamw", framework.groups(0.1))
    set_rates(optimiser, rate=1e-3, peak=1e-3)
    loss = Stepper.make("cpu", precision, micro_batch)(framework, optimiser, [views(0), views(1)], weights)
    gradients = {name: p.grad.clone() for name, p in framework.named_parameters() if p.grad is not None}
    return loss, gradients, framework


@pytest.mark.parametrize("micro_batch", [1, 3, 4])
def test_accumulation_gives_the_gradients_of_the_whole_batch(micro_batch):
    weights = torch.tensor([0.5, 1.5, 1, 1, 2, 0, 1, 1])
    whole_loss, whole, _ = stepped(None, weights=weights)
    loss, parts, framework = stepped(micro_batch, weights=weights)
    torch.testing.assert_close(loss, whole_loss, rtol=1e-5, atol=0)
    assert parts.keys() == whole.keys() and len(whole) > 50 and framework.step == 1
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=2e-6, msg=lambda text, name=name: name + text)


def test_accumulation_holds_the_graph_of_one_micro_batch_at_a_time():
    framework = fresh()
    optimiser = create_optimiser("adamw", framework.groups(0.1))
    seen = []
    encode = framework.encode

    def watched(part):
        seen.append((len(part), torch.is_grad_enabled()))
        return encode(part)

    framework.encode = watched
    Stepper.make("cpu", micro_batch=3)(framework, optimiser, [views(0), views(1)], None)
    assert [rows for rows, graph in seen if graph] == [3, 3, 2] * 2 and max(rows for rows, _ in seen) == 3


def test_accumulation_is_refused_where_batch_norm_would_see_the_micro_batch():
    with pytest.raises(ConfigError, match="micro_batch is 4 and the backbone has batch norms"):
        check_micro_batch(create_backbone("resnet10_narrow", 32), 4, 8)
    check_micro_batch(create_backbone("vit_pico_patch8", 32), 4, 8)
    check_micro_batch(create_backbone("resnet10_narrow", 32), None, 8)


def test_fp16_scales_the_loss_and_unscales_the_gradients():
    framework = fresh()
    scaled = copy.deepcopy(framework)
    optimisers = [create_optimiser("sgd", each.groups(0.0)) for each in (framework, scaled)]
    for optimiser in optimisers:
        set_rates(optimiser, rate=0.1, peak=0.1)
    Stepper.make("cpu")(framework, optimisers[0], [views(0), views(1)], None)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    Stepper("cpu", "fp16", scaler=scaler)(scaled, optimisers[1], [views(0), views(1)], None)
    assert isinstance(Stepper.make("cpu", "fp16").scaler, torch.amp.GradScaler)
    exact, rough = (
        each.predictor[0].weight.detach() - fresh().predictor[0].weight.detach() for each in (framework, scaled)
    )
    assert exact.abs().max() > 0 and (exact - rough).norm() < 0.2 * exact.norm()
