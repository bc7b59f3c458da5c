import numpy as np
import pytest
import torch
from small_datasets import CPU, coloured
from torch import nn

from viewkit.pipelines.compare.config import CompareConfig
from viewkit.pipelines.compare.cost import Cost
from viewkit.pipelines.compare.curves import mean_curves
from viewkit.pipelines.compare.plan import Cell, Control, plan_controls
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.predictions import load_predictions, save_predictions
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.training.cost import counting
from viewkit.shards.errors import ConfigError, DataError


def test_a_control_is_the_reference_trained_longer_by_the_cost():
    (found,) = plan_controls("random", [(Cell("vs2fi", 150), 2.5), (Cell("jointcrop", 150), 1.0)])
    assert found == Control(Cell("vs2fi", 150), Cell("random", 375, control=True), 2.5)


def test_arms_of_nearly_the_same_cost_share_the_longer_control():
    cells = [Cell("a", 100), Cell("b", 100), Cell("c", 100), Cell("d", 100)]
    found = plan_controls("random", list(zip(cells, (2.0, 1.97, 1.5, 1.04), strict=True)))
    assert {each.of.arm: each.cell.steps for each in found} == {"a": 200, "b": 200, "c": 150}


def test_a_control_as_long_as_another_length_is_the_references_own_run_there():
    cells = [Cell("vs2fi", 150), Cell("vs2fi", 300)]
    short, long = plan_controls("random", list(zip(cells, (2.0, 1.5), strict=True)))
    assert short.cell == Cell("random", 300) and long.cell == Cell("random", 450, control=True)


def test_runs_are_named_by_comparison_arm_length_and_seed():
    assert Cell("vs2fi", 150).run("mine", 3) == "mine-vs2fi-150-3"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seeds": 1}, "seeds is 1: nothing is known of the spread"),
        ({"lengths": "150,x"}, "lengths is '150,x'"),
        ({"lengths": "150,150"}, "name every one once"),
        ({"arms": "random,random"}, "name every one once"),
        ({"matters": 0.0}, "matters"),
    ],
)
def test_impossible_options_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        CompareConfig(**options)


def test_operations_of_a_product_are_two_for_each_multiplication():
    layer = nn.Linear(5, 3, bias=False)
    with counting(layer) as found:
        layer(torch.zeros(7, 5))
    assert found.flops == 2 * 7 * 5 * 3
    with counting(layer) as found:  # a backward costs the gradient of the weights, and that of the input
        layer(torch.zeros(7, 5, requires_grad=True)).sum().backward()
    assert found.flops == 3 * 2 * 7 * 5 * 3


@pytest.mark.parametrize("arch", ["resnet10_narrow", "vit_pico_patch8"])
def test_images_through_a_backbone_are_counted_three_times_where_they_are_learnt_from(arch):
    backbone = create_backbone(arch, 32, seed=0).train()
    views = torch.zeros(6, 3, 32, 32)
    with counting(backbone) as learnt:
        backbone(views).sum().backward()
    with counting(backbone) as plain, torch.no_grad():
        backbone(views)
    assert (learnt.passes, plain.passes) == (18, 6)
    assert 2.5 < learnt.flops / plain.flops <= 3  # the first layer needs no gradient of its input
    assert not any(module._forward_hooks for module in backbone.modules())


def test_counting_the_last_step_again_leaves_the_log_of_views_as_it_was(tmp_path):
    dataset = coloured(tmp_path / "d", 4, seed=0)
    config = PretrainConfig(
        framework="simclr", arch="resnet10_narrow", steps=3, warmup_epochs=0.0, batch_size=12, hidden=16, dim=8,
        select="hard", views=4, log_views=2,
    )  # fmt: skip
    numbers = run_stage(PretrainStage("logged"), config, dataset, CPU).numbers
    assert numbers["step_passes"] == 12 * (4 + 2 * 3) and numbers["step_flops"] > 1e6
    first, last = (np.load(dataset.path / "runs/logged/views" / f"{step:08d}.npz") for step in (0, 2))
    assert not np.array_equal(first["recipes"], last["recipes"])  # the counted batch is the first one


def test_costs_add_up_and_what_is_not_known_stays_unknown():
    whole = Cost(seconds=2.0, passes=3, flops=5) + Cost(seconds=None, passes=1, flops=1, uncounted=("genview",))
    assert whole == Cost(seconds=None, passes=4, flops=6, uncounted=("genview",))


def test_curves_are_means_over_seeds_where_all_have_a_value():
    logs = [[{"step": 10, "loss": 4.0}, {"step": 20, "loss": 3.0}, {"step": 30, "loss": 1.0}],
            [{"step": 10, "loss": 2.0}, {"step": 20, "loss": None}, {"step": 30, "loss": 2.0}]]  # fmt: skip
    (curve,) = mean_curves(logs).values()
    assert (
        curve["step"] == [10, 30] and curve["mean"] == [3.0, 1.5] and curve["sd"] == pytest.approx([2**0.5, 0.5**0.5])
    )


def test_predictions_come_back_in_the_order_of_the_keys(tmp_path):
    results = {"encoder": [{"name": "knn20", "top1": 0.5, "predicted": [[2, 0, -1]]}]}
    save_predictions(tmp_path / "p.safetensors", results, ["c", "a", "b"], np.array([2, 1, 0]))
    found = load_predictions(tmp_path / "p.safetensors")
    assert found.labels.tolist() == [1, 0, 2] and found.of["encoder/knn20"].tolist() == [[0, -1, 2]]
    assert found.correct("knn20").tolist() == [[False, False, True]] and "predicted" not in results["encoder"][0]
    with pytest.raises(DataError, match="no predictions of 'linear'"):
        found.correct("linear")
