from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_datasets import CPU, coloured
from torch import nn
from vs2fi_world import make_images, write_column

from viewkit.pipelines.compare.config import CompareConfig
from viewkit.pipelines.compare.cost import Cost, OfflineCosts, training_cost
from viewkit.pipelines.compare.curves import mean_curves
from viewkit.pipelines.compare.plan import Cell, Control, Priced, plan_controls
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.predictions import load_predictions, save_predictions
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.training.cost import counting
from viewkit.pipelines.views.recipe import neutral_recipes
from viewkit.shards.artifact import IDENTITY, Artifact, finish_artifact
from viewkit.shards.codecs import encode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import make_folder
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Row


def priced(cells, ratios):
    """Of a reference that reads nothing."""
    return [Priced(cell, ratio, 1.0) for cell, ratio in zip(cells, ratios, strict=True)]


def test_a_control_is_the_reference_trained_longer_by_the_cost():
    (found,) = plan_controls("random", priced([Cell("vs2fi", 150), Cell("jointcrop", 150)], [2.5, 1.0]))
    assert found == Control(Cell("vs2fi", 150), Cell("random", 375, control=True), 2.5)


def test_offline_stages_of_the_reference_are_paid_once_however_long_its_control_trains():
    training, offline, total = 10.0, 30.0, 80.0  # of 100 steps of the reference; of the arm, in all
    (found,) = plan_controls("stored", [Priced(Cell("hard", 100), total, training, offline)])
    assert found == Control(Cell("hard", 100), Cell("stored", 500, control=True), 2.0)
    assert offline + training * found.cell.steps / 100 == total
    assert plan_controls("stored", [Priced(Cell("hard", 100), 41.0, training, offline)]) == []


def test_arms_of_nearly_the_same_cost_share_the_longer_control():
    cells = [Cell("a", 100), Cell("b", 100), Cell("c", 100), Cell("d", 100)]
    found = plan_controls("random", priced(cells, (2.0, 1.97, 1.5, 1.04)))
    assert {each.of.arm: each.cell.steps for each in found} == {"a": 200, "b": 200, "c": 150}


def test_a_control_as_long_as_another_length_is_the_references_own_run_there():
    short, long = plan_controls("random", priced([Cell("vs2fi", 150), Cell("vs2fi", 300)], (2.0, 1.5)))
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


def test_a_generator_s_autoencoder_is_paid_for_or_said_to_be_uncounted(tmp_path):
    def cost(numbers, inputs):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "metrics.jsonl").write_text('{"step": 4, "images_per_s": 2.0}\n')
        (folder / "autoencoder.jsonl").write_text('{"step": 10, "images_per_s": 8.0}\n')
        identity = Identity("generator", 1, {"batch_size": 6, "autoencoder_steps": 10}, inputs, {})
        write_identity(folder / IDENTITY, identity)
        steps = {"steps": 4, "step_flops": 5.0, "step_passes": 0.0}
        finish_artifact(folder, identity.digest, {**steps, **numbers}, ())
        return training_cost(Artifact(folder, "generator"))

    counted = {"autoencoder_flops": 100.0, "autoencoder_batch": 16}
    assert cost(counted, {}) == Cost(seconds=4 * 6 / 2 + 10 * 16 / 8, flops=4 * 5 + 100)
    assert cost({}, {}).uncounted == ("generator's autoencoder",)
    assert cost({}, {"autoencoder/vae/config.json": "ab"}) == Cost(seconds=4 * 6 / 2, flops=4 * 5)


@pytest.fixture
def looked_at(tmp_path):
    """Twelve images, a column with four views of ten of them, and components of both, with an encoder of one sum."""
    dataset = make_images(tmp_path / "d", count=12)
    recipes = encode_npy(neutral_recipes(8, 32).reshape(2, 4, -1))
    rows = [Row(key, {"recipes.npy": recipes}) for key in dataset.column("images").keys()[:10]]
    write_column(dataset, "pairs_other", rows, 8, stage="score")
    for name, pairs, files in (
        ("foreground", {}, {}),
        ("foreground_index", {}, {"index.npy": b"index"}),
        ("foreground_views", {"pairs_other": "0" * 64}, {}),
    ):
        folder = dataset.path / name
        make_folder(folder)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        identity = Identity("foreground", 4, {"sample": 7, "encoder": "sum"}, {"images": "0" * 64, **pairs}, {})
        write_identity(folder / IDENTITY, identity)
        finish_artifact(folder, identity.digest, {}, ())
    return dataset


@pytest.mark.parametrize(
    ("name", "passes"),
    [("foreground", 7 + 7), ("foreground_index", 12 + 7), ("foreground_views", 7 * (4 + 1))],
)
def test_a_component_costs_what_its_fit_encodes(looked_at, name, passes):
    found = OfflineCosts(looked_at, forwards={"sum": Cost(seconds=0.5, passes=1, flops=3)})
    assert found.of(name) == Cost(seconds=passes / 2, passes=passes, flops=3 * passes)


def test_an_encoder_of_random_weights_is_counted_and_one_with_published_ones_is_not(tmp_path, monkeypatch):
    opened = SimpleNamespace(model=nn.Conv2d(3, 1, 8, bias=False), side_px=8)
    monkeypatch.setattr("viewkit.pipelines.compare.cost.open_encoder", lambda name, dataset, device: opened)
    found = OfflineCosts(Dataset(tmp_path))
    random, published = (found.views(10, f"timm:test_resnet{weights}") for weights in ("/random", ""))
    assert random.uncounted == () and (random.passes, random.flops) == (10, 10 * 2 * 3 * 8 * 8)
    assert published.uncounted == ("timm:test_resnet",) and published.flops == 0


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
