"""Nothing in a training step waits for the device: rows to views, selection, loss, update, what is counted of it."""

import pytest
import torch
from host_waits import AnyAutocast, HostWaits
from small_datasets import coloured
from small_frameworks import OPTIONS, small_config

from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.models.dropping import seed_drops
from viewkit.pipelines.pretrain.config import resolve
from viewkit.pipelines.pretrain.stage import prepare
from viewkit.pipelines.training.loop import Window, train_step
from viewkit.pipelines.training.step import Stepper


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return coloured(tmp_path_factory.mktemp("data") / "data", per_class=12, seed=0)


@pytest.fixture(autouse=True)
def autocast_on_any_device(monkeypatch):
    monkeypatch.setattr(torch, "autocast", AnyAutocast)


def waits_of_a_step(dataset, name, **options):
    """Of the third step of a training on a device without values; the first ones fill tables that are kept."""
    settings = resolve(small_config(name, side_px=16, **options))
    training = prepare(settings, Run(dataset, dataset.path / "none", "pretrain", device="meta"))
    framework, stepper, window = training.framework.train(), Stepper.make("cpu"), Window(0)
    batches = iter(training.source.epoch(0))

    def step():
        batch = next(batches)
        seed_drops(framework, training.schedule.seed, framework.step)
        chosen = batch if training.selector is None else training.selector(framework, batch, stepper)
        assert all(view.is_meta for view in chosen.views)
        loss = train_step(framework, training.optimiser, chosen, training.schedule, stepper)
        window.add(loss, chosen)

    with HostWaits():
        step()
        step()
    with HostWaits() as waits:
        step()
    return waits.found


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_no_step_of_a_framework_waits(name, dataset):
    assert waits_of_a_step(dataset, name) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simclr", "moco_v2", "dino"])
def test_no_selection_of_hard_views_waits(name, dataset):
    views = {"views": 4, "small_views": 9} if name == "dino" else {"views": 4}
    assert waits_of_a_step(dataset, name, select="hard", **views) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["moco_v2", "moco_v3"])
def test_no_comparison_of_distributions_waits(name, dataset):
    assert waits_of_a_step(dataset, name, views_per_side=2, multi_view="dsf") == {}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["moco_v3", "dsf_cifar"])
def test_no_rendering_waits(policy, dataset):
    """MoCo v3's views have blur and solarize, those of DSF have RandAugment."""
    assert waits_of_a_step(dataset, "simclr", policy=policy) == {}


def test_the_counter_sees_every_kind_of_wait():
    values = torch.zeros(3, device="meta")
    with HostWaits() as waits:
        float(values.sum()), values.cpu(), values.nonzero(), values[values > 0]
        torch.zeros(3).to("meta"), torch.tensor([1.0], device="meta")
        torch.zeros(3).to("meta", non_blocking=True)
    assert {what for what, _ in waits.found} == {
        "_local_scalar_dense", "copy to the host", "nonzero", "index by a mask", "blocking copy to the device",
        "tensor of a list",
    }  # fmt: skip
    assert waits.found.total() == 6
