"""Learning rates, warm-ups, stochastic depth and teachers as the frameworks' released code has them."""

from dataclasses import replace

import pytest
import torch
from small_frameworks import batch, small_framework, small_training, train
from vs2fi_world import make_images

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.frameworks.table import cards
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.dropping import drop_paths, seed_drops
from viewkit.pipelines.models.heads import UnitPrototypes
from viewkit.pipelines.models.momentum import momentum_copy
from viewkit.pipelines.models.saved import load_encoder
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.training import loop
from viewkit.pipelines.training.optimisers import create_optimiser, decay_all
from viewkit.pipelines.training.schedules import Schedule
from viewkit.pipelines.training.step import check_micro_batch
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.errors import ConfigError

DINO = PretrainConfig(
    framework="dino", arch="vit_pico_patch8", epochs=2, batch_size=8, hidden=16, bottleneck=8, dim=24, side_px=56,
    warmup_epochs=0.0, last_freeze_epochs=0.0,
)  # fmt: skip


def settings_of(framework, batch_size, lr=None, arch="resnet50", **options):
    return resolve(PretrainConfig(framework=framework, arch=arch, batch_size=batch_size, lr=lr, **options))


@pytest.mark.parametrize(
    ("settings", "peak", "end"),
    [
        (settings_of("swav", 4096), 4.8, 0.0048),
        (settings_of("swav", 256, lr=0.6, queue_length=3840), 0.6, 0.0006),
        (settings_of("dino", 512, arch="vit_small_patch16_224"), 1e-3, 1e-6),
        (settings_of("dino", 1024, arch="vit_small_patch16_224"), 2e-3, 1e-6),
        (settings_of("vicreg", 2048), 1.6, 1.6e-3),
        (settings_of("barlow_twins", 2048), 1.6, 1.6e-3),
        (settings_of("moco_v3", 4096), 4.8, 0.0),
    ],
)
def test_the_cosine_ends_where_the_released_code_ends_it(settings, peak, end):
    assert (settings.peak_lr, settings.lr_end) == (pytest.approx(peak), pytest.approx(end))
    schedule = Schedule(steps=1000, warmup_steps=10, peak_lr=settings.peak_lr, lr_end=settings.lr_end)
    assert schedule.lr(1000) == pytest.approx(end) and schedule.lr(10) == pytest.approx(peak)


def test_moco_v1_takes_a_tenth_after_epochs_120_and_160_of_200():
    settings = settings_of("moco_v1", 256)
    assert (settings.lr_schedule, settings.lr_end, settings.warmup_epochs) == ("steps", 0.0, 0.0)
    schedule = Schedule(steps=200 * 7, warmup_steps=0, peak_lr=0.03, lr_schedule="steps")
    rates = [schedule.lr(7 * epoch + step) for epoch in range(200) for step in (0, 6)]
    assert rates == pytest.approx([0.03] * 240 + [0.003] * 80 + [0.0003] * 80)
    assert settings_of("moco_v2", 256).lr_schedule == "cosine"


def test_every_framework_warms_up_as_its_code_does():
    found = {name: (card.resnet.warmup_epochs, card.vit.warmup_epochs) for name, card in cards().items()}
    assert found == {
        **dict.fromkeys(("simclr", "moco_v3", "byol", "swav", "vicreg", "barlow_twins"), (10.0, 40.0)),
        **dict.fromkeys(("moco_v1", "moco_v2", "simsiam"), (0.0, 40.0)),
        "dino": (10.0, 10.0),
    }
    assert settings_of("moco_v3", 1024, arch="vit_small_patch16_224", epochs=300).warmup_epochs == 40.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr_end": 0.5, "lr": 0.1}, r"lr_end is 0.5 and the highest learning rate of the whole batch is 0.1"),
        ({"lr_end": 0.01, "lr_schedule": "steps"}, r"lr_schedule is 'steps', which has no end"),
        ({"drop_path": 0.1}, r"drop_path is 0.1 and arch is 'resnet50': only ViTs drop paths"),
    ],
)
def test_rates_and_drops_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        settings_of("moco_v3", 256, **options)


def test_swav_adapts_and_decays_biases_and_norms_too_as_its_wrapper_around_sgd_does():
    assert resolve(PretrainConfig(framework="swav", arch="resnet50")).decay_all
    framework = small_framework("swav")
    groups = decay_all(framework.groups(1e-6), 1e-6)
    optimiser = create_optimiser("lars", groups)
    norm = framework.backbone.trunk.bn1.weight
    before = norm.detach().clone()
    for group in optimiser.param_groups:
        group["lr"] = 1.0
    framework.loss(batch("swav")).backward()
    gradient = norm.grad + 1e-6 * before
    optimiser.step()
    expected = before - 0.001 * before.norm() / gradient.norm() * gradient
    torch.testing.assert_close(norm.detach(), expected, rtol=1e-4, atol=1e-7)


def test_dino_cuts_wider_large_views_for_a_resnet_as_released():
    policy = load_policy(resolve(replace(DINO, arch="resnet50", side_px=224)).policy)
    assert [spec.area for spec in policy.views[:2]] == [(0.14, 1.0)] * 2
    assert {spec.area for spec in policy.views[2:]} == {(0.05, 0.14)} and len(policy.views) == 10
    assert load_policy(resolve(replace(DINO, side_px=224)).policy).views[2].area == (0.05, 0.4)


def test_dino_keeps_its_teacher(tmp_path, monkeypatch):
    trained, train_all = [], loop.train

    def remembering(framework, *arguments, **options):
        trained.append(framework)
        return train_all(framework, *arguments, **options)

    monkeypatch.setattr("viewkit.pipelines.pretrain.stage.train", remembering)
    no_step = {"step_flops": 0.0, "step_passes": 0.0}  # the counted step would move both networks
    monkeypatch.setattr("viewkit.pipelines.pretrain.stage.count_step", lambda *arguments, **options: no_step)
    dataset = make_images(tmp_path / "d")
    run_stage(
        PretrainStage("dino"),
        replace(DINO, arch="resnet10_narrow", side_px=16, steps=2),
        dataset,
        Execution(device="cpu"),
    )
    kept, _ = load_encoder(dataset.artifact("runs/dino"))
    (framework,) = trained
    teacher, student = framework.momentum_backbone.trunk.state_dict(), framework.backbone.trunk.state_dict()
    assert framework.kept is framework.momentum_backbone
    saved = kept.trunk.state_dict()
    assert all(torch.equal(weight, saved[name]) for name, weight in teacher.items())
    assert not all(torch.equal(weight, saved[name]) for name, weight in student.items())


def test_the_other_frameworks_keep_the_backbone_that_learns():
    for name in ("moco_v3", "byol", "swav", "simclr"):
        framework = small_framework(name)
        assert framework.kept is framework.encoder is framework.backbone


def test_a_dropping_backbone_has_timms_rates_and_its_momentum_copy_drops_nothing():
    backbone = create_backbone("vit_pico_patch8", 32, init="timm", drop_path=0.1)
    assert [each.drop_prob for each in drop_paths(backbone)] == pytest.approx(
        [0.1 * block / 5 for block in range(1, 6) for _ in range(2)]
    )
    assert not drop_paths(momentum_copy(backbone)) and not drop_paths(create_backbone("vit_pico_patch8", 32))
    plain = create_backbone("vit_pico_patch8", 32, init="timm")
    views = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(backbone.eval()(views), plain.eval()(views), msg="dropping changes no weights")
    assert (
        resolve(DINO).drop_path == 0.1
        and resolve(replace(DINO, framework="moco_v3", bottleneck=None, last_freeze_epochs=None)).drop_path == 0
    )
    with pytest.raises(ConfigError, match="drops paths at random, others in each of the two passes"):
        check_micro_batch(backbone, 2, 8)


def test_what_a_step_drops_depends_on_seed_and_step_alone():
    backbone = create_backbone("vit_pico_patch8", 32, init="timm", drop_path=0.5).train()
    views = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def forward(seed, step):
        seed_drops(backbone, seed, step)
        return backbone(views).detach()

    first = forward(0, 3)
    torch.rand(5)
    assert torch.equal(forward(0, 3), first)
    assert not torch.equal(forward(0, 4), first) and not torch.equal(forward(1, 3), first)


@pytest.mark.slow
def test_a_dropping_run_that_was_killed_goes_on_with_the_same_drops(tmp_path, monkeypatch):
    dataset = make_images(tmp_path / "d")
    config = replace(DINO, steps=6)
    whole = run_stage(PretrainStage("whole"), config, dataset, Execution(device="cpu"))
    monkeypatch.setattr(loop, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr("viewkit.pipelines.training.monitoring.LOG_EVERY", 2)
    steps, train_step = [], loop.train_step

    def dying(*arguments):
        steps.append(1)
        if len(steps) == 5:
            raise MemoryError
        return train_step(*arguments)

    monkeypatch.setattr(loop, "train_step", dying)
    with pytest.raises(MemoryError):
        run_stage(PretrainStage("killed"), config, dataset, Execution(device="cpu"))
    run_stage(PretrainStage("killed"), config, dataset, Execution(device="cpu"))
    weights = [load_encoder(dataset.artifact(f"runs/{name}"))[0].trunk.state_dict() for name in ("whole", "killed")]
    assert whole.numbers["steps"] == 6 and all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_prototypes_learn_their_lengths_where_they_are_not_held_at_1():
    x = torch.nn.functional.normalize(torch.randn(5, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    held, free = UnitPrototypes(8, 3), UnitPrototypes(8, 3, learn_lengths=True)
    free.weight.data.copy_(held.weight)
    assert torch.equal(held(x), free(x)), "both begin at length 1"
    free.lengths.data.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    torch.testing.assert_close(free(x), held(x) * torch.tensor([1.0, 2.0, 3.0]))


def test_free_lengths_of_dinos_last_layer_are_frozen_with_it_and_then_trained():
    framework, optimiser = small_training("dino", norm_last=False, last_freeze_epochs=2.0)
    train(framework, optimiser, [batch("dino", step) for step in range(2)])
    assert torch.equal(framework.head.last.lengths, torch.ones(24, 1))
    train(framework, optimiser, [batch("dino", 2)])
    assert not torch.equal(framework.head.last.lengths, torch.ones(24, 1))


@pytest.mark.parametrize(
    ("framework", "options", "name"),
    [
        ("swav", {"prototype_freeze_steps": 10}, "prototype_freeze"),
        ("dino", {"last_freeze_epochs": 2.5}, "last_freeze"),
    ],
)
def test_a_training_in_which_a_last_layer_would_never_learn_is_refused(framework, options, name):
    card = cards()[framework]
    own = card.resolve(options, "resnet", 64)
    backbone = create_backbone("resnet10_narrow", 32, seed=0)
    with pytest.raises(ConfigError, match=f"{name} lasts 10 steps and the training has 10"):
        card.create(backbone, own, seed=0, steps=10, steps_per_epoch=4)
    card.create(backbone, own, seed=0, steps=11, steps_per_epoch=4)


def test_a_plan_times_batches_whose_parts_have_two_rows(tmp_path):
    """Of ShuffleBN's eight parts; at 32 px the last map of such a ResNet is a single number a row."""
    dataset = make_images(tmp_path / "d", count=40)
    config = PretrainConfig(framework="moco_v2", arch="resnet18", side_px=32, batch_size=32, steps=4)
    plan = plan_stage(PretrainStage("split"), config, dataset, Execution(device="cpu"))
    assert plan["step_s"] > 0
