import numpy as np
import pytest
import torch
from vs2fi_world import make_images

from viewkit.pipelines.encoders.encoder import FeatureExtractor
from viewkit.pipelines.evaluate.augmented import CROPS, ViewSource
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.finetune import PUBLISHED, TuneSettings, finetune
from viewkit.pipelines.evaluate.labelled import Labelled
from viewkit.pipelines.evaluate.network_probes import tune_settings
from viewkit.pipelines.evaluate.sweep import draw_weights
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.pairs.samples import SampleReader
from viewkit.shards.errors import DataError

ZERO, ONE = (0.0,) * 3, (1.0,) * 3


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    column = make_images(tmp_path_factory.mktemp("views") / "d", count=20, shard_rows=8).column("images")
    return Labelled(column, np.arange(20) % 4)


def source(labelled, rows=None, name="a", batch_size=8, side_px=16):
    encoder = FeatureExtractor(torch.nn.Flatten(), side_px, ZERO, ONE)
    rows = np.arange(20) if rows is None else rows
    return ViewSource(
        labelled, labelled.labels, rows, encoder, SampleReader(), batch_size=batch_size, seed=0, name=name, device="cpu"
    )


def test_an_epoch_shows_every_row_once_with_its_label(labelled):
    batches = list(source(labelled).epoch(0))
    rows = torch.cat([rows for _, _, rows in batches])
    assert sorted(rows.tolist()) == list(range(20)) and [len(rows) for *_, rows in batches] == [7, 7, 6]
    assert all(torch.equal(labels, rows % 4) for _, labels, rows in batches)


def test_only_the_rows_that_were_asked_for_take_part(labelled):
    rows = torch.cat([rows for _, _, rows in source(labelled, np.array([3, 11])).epoch(0)])
    assert sorted(rows.tolist()) == [3, 11]


def test_epochs_repetitions_and_only_they_give_other_views(labelled):
    (first, _, rows), *_ = source(labelled).epoch(1)
    assert torch.equal(first, next(source(labelled).epoch(1))[0])
    for other, _, number in (next(source(labelled).epoch(2)), next(source(labelled, name="b").epoch(1))):
        assert not torch.equal(number, rows) or not torch.equal(other, first)


def test_a_view_depends_on_its_row_and_epoch_alone(labelled):
    whole = {
        int(row): view for views, _, rows in source(labelled).epoch(3) for view, row in zip(views, rows, strict=True)
    }
    (views, _, rows), *_ = source(labelled, np.array([5, 9])).epoch(3)
    assert all(torch.equal(view, whole[int(row)]) for view, row in zip(views, rows, strict=True))


def test_the_views_are_crops_and_flips_without_any_change_of_colour():
    (spec,) = CROPS.views
    assert (spec.area, spec.p_flip) == ((0.08, 1.0), 0.5)
    assert (spec.p_jitter, spec.p_grey, spec.p_blur, spec.p_solarize, spec.p_randaugment) == (0, 0, 0, 0, 0)


def two_colours(seed, count=16):
    """An epoch of red and blue pictures, half each."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    views = 0.3 * torch.rand(count, 3, 16, 16, generator=generator)
    views[:, 0] += (labels == 0)[:, None, None]
    views[:, 2] += (labels == 1)[:, None, None]
    return views, labels, torch.arange(count)


@pytest.mark.parametrize("arch", ["resnet10_narrow", pytest.param("vit_pico_patch8", marks=pytest.mark.slow)])
def test_fine_tuning_trains_every_weight_of_a_copy_and_leaves_the_encoder_as_it_was(arch):
    encoder = create_backbone(arch, 16).eval().requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    first = draw_weights(2, encoder.num_features, np.random.default_rng(0))
    settings = TuneSettings(optimiser="adamw", lr=1e-3, head_lr=1e-2, weight_decay=0.0)
    network = finetune(
        encoder, lambda epoch: iter([two_colours(9 * epoch + k) for k in range(9)]), first, settings=settings, epochs=8
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
    assert not encoder.training and not any(parameter.requires_grad for parameter in encoder.parameters())
    still = [name for name, value in network[0].named_parameters() if torch.equal(value, before[name])]
    assert still == [] and not network.training
    views, labels, _ = two_colours(99)
    assert (network(views).argmax(dim=1) == labels).double().mean() == 1


def test_the_first_step_takes_the_recipes_rates():
    encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
    before = encoder[1].bias.detach().clone()
    first = draw_weights(2, 5, np.random.default_rng(0))
    data = two_colours(0)
    settings = TuneSettings(optimiser="sgd", lr=0.5, head_lr=0.25, weight_decay=0.0)
    network = finetune(encoder, lambda epoch: iter([data]), first, settings=settings, epochs=1)
    encoder.requires_grad_(True)
    bias = torch.zeros(2, requires_grad=True)
    torch.nn.functional.cross_entropy(encoder(data[0]) @ first.T + bias, data[1]).backward()
    torch.testing.assert_close(network[0][1].bias, before - 0.5 * encoder[1].bias.grad)
    torch.testing.assert_close(network[1].bias, -0.25 * bias.grad)


def test_a_loss_that_is_not_finite_stops_it_and_says_which_rates_to_lower():
    encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
    first = draw_weights(2, 5, np.random.default_rng(0))
    settings = TuneSettings(optimiser="sgd", lr=1e30, head_lr=1e30, weight_decay=0.0)
    with pytest.raises(DataError, match=r"diverged in epoch .*--tune-lr or --tune-head-lr"):
        finetune(encoder, lambda epoch: iter([two_colours(epoch)] * 3), first, settings=settings, epochs=4)


def test_rates_of_the_config_replace_those_of_the_kind():
    assert tune_settings("resnet", EvaluateConfig()) == PUBLISHED["resnet"]
    tuned = tune_settings("resnet", EvaluateConfig(tune_optimiser="adamw", tune_lr=7.5e-6, tune_weight_decay=0.04))
    assert (tuned.optimiser, tuned.lr, tuned.weight_decay) == ("adamw", 7.5e-6, 0.04)
    assert tune_settings("resnet", EvaluateConfig(tune_optimiser="adamw")).weight_decay == 0.05, "HVS, table 11"
    own = tune_settings("vit", EvaluateConfig(tune_lr=0.1, tune_head_lr=0.2))
    assert (own.lr, own.head_lr, own.optimiser) == (0.1, 0.2, "adamw")
