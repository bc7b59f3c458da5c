import pytest
import reference_losses as reference
import torch
import torch.nn.functional as F
from small_frameworks import batch, small_framework, small_training, train

from viewkit.pipelines.distributed import world_size
from viewkit.pipelines.frameworks.networks.self_distillation import TeacherTau
from viewkit.pipelines.losses.assignment import balanced_assignments
from viewkit.pipelines.models.norms import SplitBatchNorm, split_norms
from viewkit.pipelines.models.queue import Queue
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.shards.errors import ConfigError


def outputs_of(framework, views):
    learning, targets = framework.roles(len(views))
    with torch.no_grad():
        return [
            framework.project(
                framework.encode(view) if j in learning else None,
                framework.encode_target(view) if j in targets else None,
            )
            for j, view in enumerate(views)
        ]


def mean(values):
    return sum(values) / len(values)


@torch.no_grad()
def test_simclr_is_the_pseudocode_of_its_paper():
    framework, views = small_framework("simclr"), batch("simclr")
    z1, z2 = (framework.projector(framework.backbone(view)).tolist() for view in views)
    assert framework.loss(views).item() == pytest.approx(mean(reference.nt_xent(z1, z2, 0.1)), rel=1e-4)
    decoupled = small_framework("simclr", decoupled=True)
    assert decoupled.loss(views).item() == pytest.approx(mean(reference.nt_xent(z1, z2, 0.1, True)), rel=1e-4)


@pytest.mark.parametrize(("name", "tau"), [("moco_v1", 0.07), ("moco_v2", 0.2)])
@torch.no_grad()
def test_moco_is_the_pseudocode_of_its_paper(name, tau):
    framework, views = small_framework(name, bn_splits=1), batch(name)
    q = framework.head(framework.backbone(views[0])).tolist()
    k = framework.momentum_head(framework.momentum_backbone(views[1])).tolist()
    expected = mean(reference.queue_info_nce(q, k, framework.queue.rows.tolist(), tau))
    assert framework.loss(views).item() == pytest.approx(expected, rel=1e-4)
    assert framework.roles(2) == (range(1), range(1, 2)), "the query's view needs no key and the key's no query"


@torch.no_grad()
def test_symmetric_moco_adds_both_directions_and_queues_both_views_keys():
    framework, views = small_framework("moco_v2", symmetric=True, bn_splits=1), batch("moco_v2")
    plain = small_framework("moco_v2", bn_splits=1)
    both = plain.loss(views) + plain.loss(views[::-1])
    torch.testing.assert_close(framework.loss(views), both, rtol=1e-4, atol=1e-5)
    framework.after_step()
    assert framework.queue.oldest.item() == 16


@torch.no_grad()
def test_moco_v3_is_the_pseudocode_of_its_paper():
    framework, views = small_framework("moco_v3"), batch("moco_v3")
    q1, q2 = (framework.predictor(framework.projector(framework.backbone(x))).tolist() for x in views)
    k1, k2 = (framework.momentum_projector(framework.momentum_backbone(x)).tolist() for x in views)
    assert framework.loss(views).item() == pytest.approx(reference.moco_v3(q1, q2, k1, k2, 1.0), rel=1e-4)


@torch.no_grad()
def test_byol_is_the_formula_of_its_paper():
    framework, views = small_framework("byol"), batch("byol")
    p1, p2 = (F.normalize(framework.predictor(framework.projector(framework.backbone(x))), dim=1) for x in views)
    z1, z2 = (F.normalize(framework.momentum_projector(framework.momentum_backbone(x)), dim=1) for x in views)
    expected = ((p1 - z2).square().sum(1) + (p2 - z1).square().sum(1)).mean()
    torch.testing.assert_close(framework.loss(views), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_simsiam_is_the_pseudocode_of_its_paper():
    framework, views = small_framework("simsiam"), batch("simsiam")
    z = [framework.projector(framework.backbone(view)) for view in views]
    p = [framework.predictor(each) for each in z]
    expected = reference.simsiam(*(each.tolist() for each in (*p, *z)))
    assert framework.loss(views).item() == pytest.approx(expected, rel=1e-4)


def test_the_rate_of_simsiams_predictor_is_fixed():
    framework = small_framework("simsiam")
    predictor = {id(p) for p in framework.predictor.parameters()}
    assert all(group["fixed_lr"] == (id(group["params"][0]) in predictor) for group in framework.groups(1e-4))


def test_barlow_twins_biases_and_norms_learn_at_their_own_rate():
    groups = small_framework("barlow_twins").groups(1e-6)
    assert [(group["decays"], group["rate"]) for group in groups] == [(True, 1.0), (False, 0.024)]
    assert 0.2 * groups[1]["rate"] == pytest.approx(0.0048)


@torch.no_grad()
def test_vicreg_and_barlow_twins_are_the_formulas_of_their_papers():
    views = batch("vicreg")
    for name in ("vicreg", "barlow_twins"):
        framework = small_framework(name)
        z1, z2 = (framework.projector(framework.backbone(view)).tolist() for view in views)
        invariance, variance, covariance = reference.vicreg_terms(z1, z2)
        expected = {
            "vicreg": 25 * invariance + 25 * variance + covariance,
            "barlow_twins": reference.barlow_twins(z1, z2, 0.0051),
        }[name]
        assert framework.loss(views).item() == pytest.approx(expected, rel=1e-3)


@torch.no_grad()
def test_swav_is_the_pseudocode_of_its_paper():
    framework, views = small_framework("swav"), batch("swav")
    scores = [framework.project(framework.encode(view), None).query.tolist() for view in views]
    losses = []
    for place in range(2):
        q = reference.sinkhorn(scores[place], 0.05, 3)
        for view in [j for j in range(4) if j != place]:
            for target, row in zip(q, scores[view], strict=True):
                logs = reference.softmax([score / 0.1 for score in row])
                losses.append(-sum(t * torch.tensor(p).log().item() for t, p in zip(target, logs, strict=True)))
    assert framework.loss(views).item() == pytest.approx(mean(losses), rel=1e-3)


def test_swavs_prototypes_have_length_one_and_rest_at_first():
    framework, optimiser = small_training("swav")
    lengths = [framework.prototypes.weight.norm(dim=1)]
    first = framework.prototypes.weight.detach().clone()
    for step in range(3):
        train(framework, optimiser, [batch("swav", step)])
        lengths.append(framework.prototypes.weight.norm(dim=1))
        rests = torch.allclose(framework.prototypes.weight, first, atol=1e-6)
        assert rests == (step < 2)
    for each in lengths:
        torch.testing.assert_close(each, torch.ones(12))


@torch.no_grad()
def test_swavs_queues_are_filled_from_their_start_and_used_when_full():
    framework = small_framework("swav", queue_length=16, queue_start_epochs=1.0)
    used = []
    for step in range(5):
        outputs = outputs_of(framework, batch("swav", step))
        plain = balanced_assignments(outputs[1].query, epsilon=0.05, rounds=3)
        assigned = framework.assign(outputs[1], 1)
        scores = torch.cat([outputs[1].query, framework.prototypes(framework.queues[1].rows)])
        whole = balanced_assignments(scores, epsilon=0.05, rounds=3)[:8]
        used.append(not torch.allclose(assigned, plain))
        torch.testing.assert_close(assigned, whole if used[-1] else plain)
        framework.loss_of(outputs, None)
        framework.step += 1
        framework.after_step()
        if step >= 1:
            place = 8 * ((step - 1) % 2)
            torch.testing.assert_close(framework.queues[1].rows[place : place + 8], outputs[1].z)
    assert used == [False, False, False, True, True]


@torch.no_grad()
def test_dino_is_the_pseudocode_of_its_paper():
    framework, views = small_framework("dino"), batch("dino")
    framework.centre.copy_(torch.linspace(-0.1, 0.1, 24))
    framework.step = 40
    teachers = [framework.momentum_head(framework.momentum_backbone(view))[1].tolist() for view in views[:2]]
    students = [framework.head(framework.backbone(view))[1].tolist() for view in views]
    losses = [
        reference.cross_entropy(teachers[t][row], students[s][row], framework.centre.tolist(), 0.07, 0.1)
        for t in range(2) for s in range(4) if s != t for row in range(8)
    ]  # fmt: skip
    assert framework.loss(views).item() == pytest.approx(mean(losses), rel=1e-4)
    assert framework.roles(4) == (range(4), range(2))


@torch.no_grad()
def test_dinos_centre_follows_the_mean_of_all_teacher_outputs():
    framework, views = small_framework("dino"), batch("dino")
    outputs = outputs_of(framework, views)
    framework.crop_losses(outputs)
    framework.after_step()
    assert not framework.centre.any(), "only a training loss moves the centre"
    framework.loss_of(outputs, None)
    framework.after_step()
    torch.testing.assert_close(framework.centre, 0.1 * torch.cat([each.key for each in outputs[:2]]).mean(dim=0))


def test_dinos_last_layer_rests_at_first_and_its_rows_count_by_direction():
    framework, optimiser = small_training("dino")
    first = framework.head.last.weight.detach().clone()
    for step in range(3):
        train(framework, optimiser, [batch("dino", step)])
        assert torch.equal(framework.head.last.weight, first) == (step < 2)
    z = torch.eye(16)[:2]
    logits = framework.head.last(z)
    with torch.no_grad():
        framework.head.last.weight.mul_(7)
    torch.testing.assert_close(framework.head.last(z), logits)
    assert logits.abs().max() <= 1


def test_the_teachers_temperature_rises_linearly():
    tau = TeacherTau(0.04, 0.07, 30)
    assert [tau.at(step) for step in (0, 10, 30, 1000)] == pytest.approx([0.04, 0.05, 0.07, 0.07])
    assert TeacherTau(0.04, 0.07, 0).at(0) == 0.07


def test_epochs_become_steps_by_the_length_of_an_epoch():
    config = PretrainConfig(framework="dino", arch="vit_pico_patch8", dim=32)
    from viewkit.pipelines.frameworks.table import create_framework
    from viewkit.pipelines.models.backbones import create_backbone

    framework = create_framework(create_backbone("vit_pico_patch8", 32), resolve(config), steps=1000, steps_per_epoch=5)
    assert (framework.teacher_tau.warmup_steps, framework.freeze_steps, framework.steps) == (150, 5, 1000)
    settings = resolve(config)
    assert (settings.weight_decay, settings.weight_decay_end, settings.own["momentum"]) == (0.04, 0.4, 0.996)


def test_a_queue_is_first_in_first_out():
    queue = Queue(5, 2, seed=0)
    torch.testing.assert_close(queue.rows.norm(dim=1), torch.ones(5))
    rows = torch.arange(16.0).view(8, 2)
    queue.push(rows[:2])
    queue.push(rows[2:4])
    assert torch.equal(queue.rows[:4], rows[:4])
    queue.push(rows[4:7])
    assert torch.equal(queue.rows, rows[[5, 6, 2, 3, 4]]) and queue.oldest.item() == 2
    queue.push(torch.cat([rows, rows + 100]))
    assert {row[0] for row in queue.rows.tolist()} == {106.0, 108.0, 110.0, 112.0, 114.0}
    assert Queue(5, 2, seed=0).state_dict().keys() == {"rows", "oldest"}


def test_moco_queues_the_keys_of_every_step_after_the_step():
    framework, optimiser = small_training("moco_v2", bn_splits=1)
    start = framework.queue.rows.clone()
    with torch.no_grad():
        keys = outputs_of(framework, batch("moco_v2"))[1].key
        framework.loss(batch("moco_v2"))
    assert torch.equal(framework.queue.rows, start), "the loss alone changes nothing"
    framework, optimiser = small_training("moco_v2", bn_splits=1)
    train(framework, optimiser, [batch("moco_v2")])
    torch.testing.assert_close(framework.queue.rows[:8], keys)
    assert torch.equal(framework.queue.rows[8:], start[8:])


def test_split_norms_see_consecutive_parts_and_average_their_statistics():
    x = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    norm = torch.nn.BatchNorm2d(3)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
    parts = [torch.nn.BatchNorm2d(3) for _ in range(2)]
    for part in parts:
        part.load_state_dict(norm.state_dict())
    split = SplitBatchNorm.of(norm, 2)
    expected = torch.cat([part(rows) for part, rows in zip(parts, x.chunk(2), strict=True)])
    torch.testing.assert_close(split(x), expected)
    torch.testing.assert_close(split.running_mean, (parts[0].running_mean + parts[1].running_mean) / 2)
    torch.testing.assert_close(split.running_var, (parts[0].running_var + parts[1].running_var) / 2)
    assert split.num_batches_tracked == 1 and split.state_dict().keys() == norm.state_dict().keys()
    plain = torch.nn.BatchNorm2d(3)
    plain.load_state_dict(split.state_dict())
    assert torch.equal(split.eval()(x), plain.eval()(x))


def test_split_norms_need_batch_norms():
    assert world_size() == 1
    with pytest.raises(ConfigError, match="bn_splits is 2 and the backbone has no batch norm"):
        split_norms(torch.nn.Linear(2, 2), 2)


@torch.no_grad()
def test_keys_are_shuffled_between_the_parts_and_come_back_in_order():
    framework, view = small_framework("moco_v2", bn_splits=2), batch("moco_v2")[0]
    seen = []
    framework.momentum_backbone.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0]))
    keys = framework.encode_target(view)[0]
    order = [next(i for i in range(8) if torch.equal(view[i], row)) for row in seen[0]]
    assert sorted(order) == list(range(8)) != order
    framework.step = 1
    framework.encode_target(view)
    framework.step = 0
    framework.encode_target(view)
    assert torch.equal(seen[2], seen[0]) and not torch.equal(seen[1], seen[0])
    expected = torch.empty_like(keys)
    twin_network = small_framework("moco_v2", bn_splits=2)
    expected[order] = twin_network.momentum_backbone(view[order])
    torch.testing.assert_close(keys, expected)
