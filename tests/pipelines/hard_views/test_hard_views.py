import copy

import numpy as np
import pytest
import reference_hvs as reference
import torch
from torch import nn

from viewkit.pipelines.frameworks.table import create_framework
from viewkit.pipelines.hard_views import forward as looking
from viewkit.pipelines.hard_views.forward import forward_pairs, roles_of_candidates
from viewkit.pipelines.hard_views.log import ViewLog, read_view_log
from viewkit.pipelines.hard_views.pairs import SELECTIONS, HardPairs, gather_views
from viewkit.pipelines.hard_views.preview import APPEARANCE, Preview, static_colours
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.norms import SharedBatchNorm, SplitBatchNorm, untracked_norms
from viewkit.pipelines.pairs.lowest_iou import LowestIouPairs
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.random import RandomViews
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.scene import scene_of
from viewkit.pipelines.pairs.select import pair_overlaps
from viewkit.pipelines.pairs.source import ViewBatch
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.training.optimisers import create_optimiser
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import BOX, column

POLICY = load_policy("simsiam").with_side(16)
OPTIONS = {
    "simclr": {"hidden": 32, "dim": 16},
    "moco_v1": {"dim": 16, "queue_length": 24, "bn_splits": 1},
    "moco_v2": {"hidden": 32, "dim": 16, "queue_length": 24, "bn_splits": 2},
    "moco_v3": {"hidden": 32, "dim": 16},
    "byol": {"hidden": 32, "dim": 16},
    "simsiam": {"hidden": 32, "dim": 16},
}
CPU = Stepper.make("cpu")


def samples(count=6):
    rng = np.random.default_rng(5)
    return [
        Sample(f"row{i}", torch.from_numpy(rng.integers(0, 256, (40 + i, 50, 3), dtype=np.uint8))) for i in range(count)
    ]


def candidates(num_views=4, count=6, epoch=0, preview=None):
    rows = samples(count)
    choice = RandomViews(POLICY, seed=0, stage="hvs", num_views=num_views)(rows, epoch)
    scene = scene_of(rows, choice.recipes, POLICY, "cpu", choice.sides_px)
    views = (scene if preview is None else preview(scene)).render()
    return ViewBatch(views, None, {"missing_views": 1}, wait_s=0.0, render_s=0.0, scene=scene)


def losses_of_pairs(network, views, stepper):
    return looking.losses_of_pairs(network, forward_pairs(network, views, stepper).outputs, stepper)


def overlaps(scene):
    return pair_overlaps(scene.recipes[:, :, BOX].astype(np.float64))


def framework(name, arch="resnet10_narrow", **options):
    config = PretrainConfig(framework=name, arch=arch, batch_size=6, **{**OPTIONS[name], **options})
    return create_framework(create_backbone(arch, 16, seed=1), resolve(config), steps=10).train()


@pytest.mark.parametrize("name", OPTIONS)
def test_the_chosen_pair_has_the_worst_loss_that_training_could_have(name):
    network, batch = framework(name), candidates(num_views=3, count=4)
    expected = reference.pair_losses(network, batch.views)
    losses = losses_of_pairs(network, batch.views, CPU)
    torch.testing.assert_close(losses, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    picked = HardPairs()(network, batch, CPU)
    pairs = pair_index(3)[[reference.worst(row) for row in losses.tolist()]]
    for row, (first, second) in enumerate(pairs):
        assert torch.equal(picked.views[0][row], batch.views[first][row])
        assert torch.equal(picked.views[1][row], batch.views[second][row])
    assert picked.scene is None  # the host does not know which views they are
    again = HardPairs(preview=Preview())(network, batch, CPU)
    assert np.array_equal(again.scene.recipes, np.take_along_axis(batch.scene.recipes, pairs[:, :, None], axis=1))
    assert picked.counts["missing_views"] == 1


@pytest.mark.parametrize("name", OPTIONS)
def test_selection_leaves_every_buffer_bit_equal_and_training_after_it_as_it_was(name):
    network, batch = framework(name), candidates()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    picked = HardPairs()(network, batch, CPU)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert network.step == 0 and network.watched is None
    assert all(parameter.grad is None for parameter in network.parameters())

    undisturbed = copy.deepcopy(network)
    losses = []
    for each, selects in ((network, True), (undisturbed, False)):
        optimiser = create_optimiser("sgd", each.groups(0.0))
        if selects:
            HardPairs()(each, batch, CPU)
        losses.append(CPU(each, optimiser, picked.views, None))
    assert torch.equal(*losses)
    after = undisturbed.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in network.state_dict().items())
    assert any(not torch.equal(value, before[key]) for key, value in after.items())


def test_norms_keep_their_statistics_and_normalise_as_in_training():
    plain = nn.BatchNorm1d(4)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    for norm in (plain, SharedBatchNorm.of(nn.BatchNorm1d(4)), SplitBatchNorm.of(nn.BatchNorm1d(4), 2)):
        module = nn.Sequential(norm)
        before = {key: value.clone() for key, value in module.state_dict().items()}
        with untracked_norms(module):
            inside = module(x)
        assert {key: value.tolist() for key, value in module.state_dict().items()} == {
            key: value.tolist() for key, value in before.items()
        }
        assert torch.equal(module(x), inside)
        assert module.state_dict()["0.num_batches_tracked"] == 1, "outside they follow again"


def test_an_error_inside_gives_the_norms_their_statistics_back():
    norm = nn.BatchNorm1d(4)
    mean = norm.running_mean
    with pytest.raises(RuntimeError), untracked_norms(norm):
        norm(torch.zeros(3, 5))
    assert norm.running_mean is mean


def test_of_equal_losses_the_first_pair_is_taken_by_either_rule():
    losses = torch.tensor([[1.0, 3.0, 3.0, 2.0, 1.0, 3.0], [2.0] * 6, [5.0, 4.0, 4.0, 5.0, 5.0, 4.5]])
    assert SELECTIONS["hard"](losses).tolist() == [1, 0, 0]
    assert SELECTIONS["easy"](losses).tolist() == [0, 0, 1]


def test_easy_takes_the_best_pair():
    network, batch = framework("simsiam"), candidates()
    losses = losses_of_pairs(network, batch.views, CPU).numpy()
    picked = HardPairs("easy")(network, batch, CPU)
    first, second = pair_index(4)[losses.argmin(axis=1)].T
    assert torch.equal(picked.views[0], torch.stack([batch.views[j][row] for row, j in enumerate(first)]))
    assert torch.equal(picked.views[1], torch.stack([batch.views[j][row] for row, j in enumerate(second)]))


def test_moco_forwards_no_query_of_the_last_candidate_and_no_key_of_the_first(monkeypatch):
    network, batch = framework("moco_v1"), candidates()
    calls = {"encode": 0, "encode_target": 0}
    for name in calls:
        plain = getattr(network, name)
        monkeypatch.setattr(network, name, lambda view, name=name, plain=plain: (
            calls.update({name: calls[name] + 1}), plain(view))[1])  # fmt: skip
    HardPairs()(network, batch, CPU)
    assert calls == {"encode": 3, "encode_target": 3}
    assert roles_of_candidates(network, 4) == ([0, 1, 2], [1, 2, 3])
    assert roles_of_candidates(framework("moco_v1", symmetric=True), 4) == ([0, 1, 2, 3], [0, 1, 2, 3])


@pytest.mark.parametrize("name", ["moco_v1", "moco_v3"])
def test_keys_of_a_network_without_batch_norm_are_not_computed_again(name, monkeypatch):
    options = {"bn_splits": None} if name == "moco_v1" else {}
    network, batch = framework(name, arch="vit_pico_patch8", **options), candidates(num_views=3)
    picked = HardPairs()(network, batch, CPU)
    assert [target is None for target in picked.targets] == [name == "moco_v1", False]
    with torch.no_grad():
        expected = copy.deepcopy(network).loss(picked.views)
        monkeypatch.setattr(network, "encode_target", None)
        torch.testing.assert_close(network.loss(picked.views, None, picked.targets), expected)


def test_keys_that_depend_on_their_batch_are_computed_again():
    assert HardPairs()(framework("moco_v3"), candidates(num_views=3), CPU).targets is None
    network, preview = framework("moco_v3", arch="vit_pico_patch8"), Preview(static_colour=True)
    assert HardPairs(preview=preview)(network, candidates(num_views=3, preview=preview), CPU).targets is None
    assert HardPairs()(framework("simsiam", arch="vit_pico_patch8"), candidates(num_views=3), CPU).targets is None
    drawing = framework("moco_v3", arch="vit_pico_patch8")
    drawing.backbone.trunk.blocks[0].attn.proj_drop.p = 0.1
    assert HardPairs()(drawing, candidates(num_views=3), CPU).targets is None


def test_micro_batches_give_the_same_losses():
    network, batch = framework("moco_v3", arch="vit_pico_patch8"), candidates(num_views=3)
    whole = losses_of_pairs(network, batch.views, CPU)
    torch.testing.assert_close(losses_of_pairs(network, batch.views, Stepper.make("cpu", micro_batch=4)), whole)


def test_losses_are_those_of_the_trainers_precision():
    network, batch = framework("simsiam"), candidates(num_views=3, count=4)
    stepper = Stepper.make("cpu", "bf16")
    rough = losses_of_pairs(network, batch.views, stepper)
    torch.testing.assert_close(rough, torch.tensor(reference.pair_losses(network, batch.views, stepper.autocast)))
    assert (rough - losses_of_pairs(network, batch.views, CPU)).abs().max() > 1e-4


def test_random_choice_hits_the_pair_of_least_overlap_once_in_six():
    rows = samples(400)
    recipes = RandomViews(POLICY, seed=0, stage="hvs", num_views=4)(rows, 0).recipes
    lowest = overlaps(scene_of(rows, recipes, POLICY, "cpu")).argmin(axis=1)
    random = np.random.default_rng(0).integers(0, 6, (200, 400))
    assert (random == lowest).mean() == pytest.approx(1 / 6, abs=0.005)
    assert overlaps(candidates(num_views=5).scene).shape == (6, 10)


def test_lowest_iou_counts_rows_whose_pair_overlaps_least():
    network, batch = framework("simsiam"), candidates()
    shared = overlaps(batch.scene)
    losses = losses_of_pairs(network, batch.views, CPU).numpy()
    hits = sum(shared[row].argmin() == losses[row].argmax() for row in range(6))
    assert HardPairs()(network, batch, CPU).counts["lowest_iou"] == hits


def test_lowest_iou_pairs_need_no_network_and_overlap_least():
    rows, choose = samples(), RandomViews(POLICY, seed=0, stage="hvs", num_views=4)
    all_boxes = choose(rows, 3).recipes[:, :, BOX].astype(np.float64)
    boxes = LowestIouPairs(choose)(rows, 3).recipes[:, :, BOX].astype(np.float64)
    first, second = pair_index(4).T
    least = overlap(all_boxes[:, first], all_boxes[:, second]).min(axis=1)
    assert boxes.shape == (6, 2, 4) and np.array_equal(overlap(boxes[:, 0], boxes[:, 1]), least)


def test_a_preview_is_smaller_and_of_one_colour_and_the_chosen_views_are_neither():
    preview = Preview(side_px=12, static_colour=True)
    batch = candidates(preview=preview)
    assert {tuple(view.shape) for view in batch.views} == {(6, 3, 12, 12)}
    network = framework("simsiam")
    chosen = pair_index(4)[losses_of_pairs(network, batch.views, CPU).numpy().argmax(axis=1)]
    picked = HardPairs(preview=preview)(network, batch, CPU)
    full = batch.scene.render()
    assert all(
        torch.equal(picked.views[place][row], full[view][row])
        for row, pair in enumerate(chosen) for place, view in enumerate(pair)
    )  # fmt: skip


def test_static_colours_are_those_of_the_first_view_and_leave_crop_and_flip():
    recipes = candidates().scene.recipes
    shared = static_colours(recipes)
    assert (shared[:, :, APPEARANCE] == recipes[:, :1, APPEARANCE]).all()
    rest = [j for j in range(recipes.shape[2]) if j not in APPEARANCE]
    assert np.array_equal(shared[:, :, rest], recipes[:, :, rest])
    assert not np.array_equal(recipes[:, 0, APPEARANCE], recipes[:, 1, APPEARANCE])
    recipes[:, 1, column("side")] = 8
    assert np.allclose(static_colours(recipes)[:, 1, column("sigma")], recipes[:, 0, column("sigma")] / 2)


def test_agreement_counts_rows_whose_choice_is_that_of_the_views_themselves():
    preview = Preview(side_px=8)
    network, batch = framework("simsiam"), candidates(preview=preview)
    small = losses_of_pairs(network, batch.views, CPU).numpy().argmax(axis=1)
    full = losses_of_pairs(network, batch.scene.render(), CPU).numpy().argmax(axis=1)
    selector = HardPairs(preview=preview, agreement_every=2)
    counts = selector(network, batch, CPU).counts
    assert (counts["agreement_rows"], counts["agreement_same"]) == (6, int((small == full).sum()))
    assert 0 < counts["agreement_same"] < 6
    network.step = 1
    assert "agreement_rows" not in selector(network, batch, CPU).counts
    network.step = 0
    same = HardPairs(preview=Preview(side_px=16), agreement_every=1)(network, candidates(), CPU).counts
    assert same["agreement_same"] == 6


def test_gather_takes_each_rows_own_views():
    views = [torch.full((3, 3, 2, 2), float(j)) + torch.arange(3.0).view(3, 1, 1, 1) / 10 for j in range(4)]
    first, second = gather_views(views, torch.tensor([[0, 3], [2, 3], [1, 2]]))
    assert first[:, 0, 0, 0].tolist() == pytest.approx([0.0, 2.1, 1.2])
    assert second[:, 0, 0, 0].tolist() == pytest.approx([3.0, 3.1, 2.2])


def test_the_log_holds_every_logged_step_and_only_those(tmp_path):
    network = framework("simsiam")
    selector = HardPairs(log=ViewLog(tmp_path, 2))
    losses = []
    for step in range(4):
        network.step = step
        batch = candidates(epoch=step)
        losses.append(losses_of_pairs(network, batch.views, CPU).numpy())
        selector(network, batch, CPU)
    first = (tmp_path / "views" / "00000000.npz").read_bytes()
    network.step = 0
    selector(network, candidates(epoch=0), CPU)
    assert (tmp_path / "views" / "00000000.npz").read_bytes() == first
    log = read_view_log(tmp_path)
    assert log["step"].tolist() == [0] * 6 + [2] * 6
    assert np.array_equal(log["losses"], np.concatenate([losses[0], losses[2]]))
    assert log["keys"].tolist() == list(candidates(epoch=0).scene.keys) * 2 and len(set(log["keys"])) == 6
    assert np.array_equal(log["views"], pair_index(4)[log["losses"].argmax(axis=1)])
    assert np.array_equal(log["sizes_px"][:6, 0, 0], np.arange(40, 46)) and log["recipes"].shape == (12, 4, 21)
    assert np.allclose(log["iou"][:6], overlaps(candidates(epoch=0).scene), atol=1e-6)
    assert read_view_log(tmp_path / "nowhere") == {}
