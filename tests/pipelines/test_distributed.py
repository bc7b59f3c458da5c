"""Two processes that train together against one that trains alone on their rows."""

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from viewkit.pipelines.distributed import (
    average_gradients,
    first_row,
    gather,
    is_main,
    mean_over_processes,
    rank,
    share_of_batch,
    sum_over_processes,
    world,
    world_size,
)
from viewkit.pipelines.frameworks.table import FRAMEWORKS, card_of
from viewkit.shards.errors import ConfigError

FAST = ("moco_v2", "vicreg")
OPTIONS = {
    "simclr": {"decoupled": True},
    "moco_v1": {"symmetric": True},
    "swav": {"queue_length": 8, "queue_start_epochs": 0.0, "prototype_freeze_steps": 0},
    "dino": {"last_freeze_epochs": 0.0},
}
STEPS = 2


def train_shares(name, device="cpu"):
    """Gradients of every step and the state in the end, on this process's share of every batch."""
    from small_frameworks import batch, small_training

    from viewkit.pipelines.models.norms import share_norms
    from viewkit.pipelines.training.optimisers import set_rates
    from viewkit.pipelines.training.step import Stepper

    framework, optimiser = small_training(name, "sgd", **OPTIONS.get(name, {}))
    share_norms(framework, device)
    share = share_of_batch(8)
    own = slice(rank() * share, (rank() + 1) * share)
    losses, gradients = [], []
    for step in range(STEPS):
        set_rates(optimiser, rate=0.01, peak=0.01)
        views = [view[own] for view in batch(name, step)]
        weights = torch.tensor([0.5, 1.5, 2.0, 0.0, 1.0, 1.0, 1.2, 0.8])[own] if card_of(name).traits.per_row else None
        losses.append(float(mean_over_processes(Stepper.make(device)(framework, optimiser, views, weights))))
        gradients.append({n: p.grad.clone() for n, p in framework.named_parameters() if p.grad is not None})
    return {"losses": losses, "gradients": gradients, "state": dict(framework.state_dict())}


def primitives():
    """What every function of `distributed` says in this process, and a line of metrics."""
    from small_frameworks import small_framework

    from viewkit.pipelines.pairs.source import ViewBatch
    from viewkit.pipelines.training.loop import Window
    from viewkit.pipelines.training.schedules import Schedule

    x = (torch.arange(6.0).view(3, 2) + 10 * rank()).requires_grad_()
    everyone = gather(x)
    (everyone * torch.arange(12.0).view(6, 2) * (rank() + 1)).sum().backward()
    y = torch.full((2,), 1.0 + rank(), requires_grad=True)
    sum_over_processes(y).square().sum().backward()
    mean = mean_over_processes(torch.tensor([1.0 + rank()]))
    weights = [
        torch.nn.Parameter(torch.zeros(2)),
        torch.nn.Parameter(torch.zeros(3)),
        torch.nn.Parameter(torch.ones(1)),
    ]
    weights[0].grad = torch.full((2,), 1.0 + 2 * rank())
    weights[1].grad = torch.full((3,), 4.0) if rank() == 0 else None
    average_gradients(weights)
    window = Window(0)
    counts = {"missing_views": 1 + rank(), "lowest_iou": 0}
    batch = ViewBatch((torch.zeros(4, 3, 2, 2),) * 2, None, counts, wait_s=0.0, render_s=0.0)
    for loss in (1.0, 2.0):
        window.add(torch.tensor(loss + rank()), batch)
    framework = small_framework("simsiam")
    framework.step, framework.watched = 2, torch.eye(2) if rank() else torch.ones(2, 2)
    line = window.line(framework, 5, Schedule(steps=4, warmup_steps=0, peak_lr=0.1))
    return {
        "line": {name: line[name] for name in ("loss", "spread", *counts)},
        "who": (rank(), world_size(), is_main(), first_row(3)),
        "gathered": everyone.detach(),
        "gathered_gradient": x.grad,
        "sum_gradient": y.grad,
        "mean": mean,
        "averaged": [weight.grad for weight in weights],
    }


def _process(number, folder, names):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=2)
    found = {name: train_shares(name) for name in names}
    torch.save({**found, "primitives": primitives()}, f"{folder}/{number}.pt")
    dist.destroy_process_group()


def in_two_processes(folder, names):
    os.makedirs(folder, exist_ok=True)
    mp.spawn(_process, (str(folder), tuple(names)), nprocs=2)
    return [torch.load(folder / f"{number}.pt", weights_only=True) for number in range(2)]


def compare(name, together):
    alone = train_shares(name)
    for found in together:
        assert found[name]["losses"] == pytest.approx(alone["losses"], rel=2e-4, abs=2e-4)
        for step in range(STEPS):
            theirs, ours = found[name]["gradients"][step], alone["gradients"][step]
            assert theirs.keys() == ours.keys() and len(ours) > 10
            scale = max(gradient.abs().max().item() for gradient in ours.values())
            for key, gradient in ours.items():
                atol = 2e-4 * gradient.abs().max().item() + 1e-6 * scale
                torch.testing.assert_close(
                    theirs[key], gradient, rtol=1e-3, atol=atol, msg=lambda text, key=key: key + text
                )
        for key, value in alone["state"].items():
            torch.testing.assert_close(
                found[name]["state"][key], value, rtol=1e-3, atol=1e-4, msg=lambda text, key=key: key + text
            )
    for key, value in together[0][name]["state"].items():
        assert torch.equal(value, together[1][name]["state"][key]), f"the processes drift apart: {key}"


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    return in_two_processes(tmp_path_factory.mktemp("two"), FAST)


@pytest.mark.parametrize("name", FAST)
def test_two_processes_take_the_steps_of_one(two_processes, name):
    compare(name, two_processes)


def test_gathering_and_averaging_are_their_formulas(two_processes):
    first, second = (found["primitives"] for found in two_processes)
    assert first["who"] == (0, 2, True, 0) and second["who"] == (1, 2, False, 3)
    rows = torch.arange(6.0).view(3, 2)
    factors = 3 * torch.arange(12.0).view(6, 2)  # process 0 counts once, process 1 twice
    for found, own in ((first, factors[:3]), (second, factors[3:])):
        assert torch.equal(found["gathered"], torch.cat([rows, rows + 10]))
        assert torch.equal(found["gathered_gradient"], own)
        assert torch.equal(found["sum_gradient"], torch.full((2,), 2 * 2 * 3.0)), "both processes square the sum 3"
        assert found["mean"].item() == 1.5
        assert [gradient.tolist() for gradient in found["averaged"]] == [[2.0] * 2, [2.0] * 3, [0.0]]


def test_a_line_of_metrics_is_of_all_processes(two_processes):
    rows = torch.cat([torch.ones(2, 2) / 2**0.5, torch.eye(2)])  # the unit-norm ones of both
    spread = float(rows.std(dim=0, correction=0).mean() * 2**0.5)
    for found in two_processes:
        line = found["primitives"]["line"]
        assert line["spread"] == pytest.approx(spread, rel=1e-6)
        assert (line["loss"], line["missing_views"], line["lowest_iou"]) == (2.0, 6, 0)


def test_a_process_waits_longer_for_another_than_a_look_at_a_large_data_set_takes(monkeypatch):
    asked = {}
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: asked.update(options, backend=backend))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with world("cpu", "pretrain", allowed=True) as device:
        assert device == "cpu" and asked["backend"] == "gloo" and asked["timeout"] >= timedelta(hours=2)


def test_a_world_of_one_changes_nothing():
    x = torch.randn(3, 2)
    assert gather(x) is x and sum_over_processes(x) is x and mean_over_processes(x) is x
    assert (rank(), world_size(), is_main(), first_row(5), share_of_batch(7)) == (0, 1, True, 0, 7)


def test_a_batch_that_cannot_be_dealt_out_is_refused(monkeypatch):
    monkeypatch.setattr("viewkit.pipelines.distributed.world_size", lambda: 3)
    with pytest.raises(ConfigError, match="batch_size is 8 on 3 processes"):
        share_of_batch(8)


@pytest.fixture(scope="module")
def all_frameworks_in_two_processes(tmp_path_factory):
    return in_two_processes(tmp_path_factory.mktemp("all"), tuple(FRAMEWORKS))


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_two_processes_take_the_steps_of_one_with_every_framework(all_frameworks_in_two_processes, name):
    compare(name, all_frameworks_in_two_processes)
