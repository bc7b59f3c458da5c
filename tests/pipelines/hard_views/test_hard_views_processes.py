"""Two processes that choose and compare views together against one that has all rows."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from viewkit.pipelines.distributed import first_row, world_size

pytestmark = pytest.mark.slow
ROWS = 6


def dsf(queued):
    """Losses and the queries' gradients of this process's rows."""
    from viewkit.pipelines.losses.multi_view import dsf_info_nce

    generator = torch.Generator().manual_seed(0)
    q, k = (0.8 * F.normalize(torch.randn(ROWS, 16, generator=generator), dim=1) for _ in range(2))
    queue = F.normalize(torch.randn(9, 16, generator=generator), dim=1) if queued else None
    own = slice(first_row(ROWS // world_size()), first_row(ROWS // world_size()) + ROWS // world_size())
    query = q[own].clone().requires_grad_()
    losses = dsf_info_nce(query, k[own], queue=queue)
    losses.mean().backward()
    return {"losses": losses.detach(), "gradient": query.grad / world_size()}


def selection(name):
    """Losses of all pairs of this process's rows, and the buffers afterwards."""
    from viewkit.pipelines.frameworks.table import create_framework
    from viewkit.pipelines.hard_views.forward import forward_pairs, losses_of_pairs
    from viewkit.pipelines.models.backbones import create_backbone
    from viewkit.pipelines.models.norms import share_norms
    from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
    from viewkit.pipelines.training.step import Stepper

    config = PretrainConfig(framework=name, arch="resnet10_narrow", batch_size=ROWS, hidden=32, dim=16)
    network = create_framework(create_backbone(config.arch, 16, seed=1), resolve(config), steps=10).train()
    share_norms(network, "cpu")
    before = {key: value.clone() for key, value in network.state_dict().items()}
    own = slice(first_row(ROWS // world_size()), first_row(ROWS // world_size()) + ROWS // world_size())
    views = [torch.randn(ROWS, 3, 16, 16, generator=torch.Generator().manual_seed(j))[own] for j in range(3)]
    stepper = Stepper.make("cpu")
    losses = losses_of_pairs(network, forward_pairs(network, views, stepper).outputs, stepper)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    return losses


def everything():
    return {"queue": dsf(True), "all": dsf(False), **{name: selection(name) for name in ("simclr", "moco_v3")}}


def _process(number, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=2)
    torch.save(everything(), f"{folder}/{number}.pt")
    dist.destroy_process_group()


def test_two_processes_have_the_losses_gradients_and_choices_of_one(tmp_path):
    mp.spawn(_process, (str(tmp_path),), nprocs=2)
    parts = [torch.load(tmp_path / f"{number}.pt", weights_only=True) for number in range(2)]
    alone = everything()
    for name in ("queue", "all"):
        for number in ("losses", "gradient"):
            together = torch.cat([part[name][number] for part in parts])
            torch.testing.assert_close(together, alone[name][number], rtol=1e-5, atol=1e-6)
    for name in ("simclr", "moco_v3"):
        together = torch.cat([part[name] for part in parts])
        torch.testing.assert_close(together, alone[name], rtol=1e-4, atol=1e-4)
        assert np.array_equal(together.argmax(dim=1), alone[name].argmax(dim=1))
