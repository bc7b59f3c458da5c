import pytest
import torch
from small_frameworks import MULTI_CROP, OPTIONS, batch, small_config, small_framework, small_training, train
from timm.models import is_model_in_modules, list_models

from viewkit.pipelines.frameworks.table import FRAMEWORKS, cards, create_framework
from viewkit.pipelines.models.architectures import kind_of
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.checkpoint import load_training, save_training
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.training.step import Stepper
from viewkit.shards.errors import ConfigError

PER_ROW = [name for name, card in cards().items() if card.traits.per_row]
BATCH_LOSSES = [name for name, card in cards().items() if not card.traits.per_row]
WITH_A_TARGET = ["moco_v1", "moco_v2", "moco_v3", "byol", "dino"]


def test_every_framework_has_a_card_whose_traits_are_what_it_does():
    assert FRAMEWORKS.keys() == OPTIONS.keys() and len(FRAMEWORKS) == 10
    assert BATCH_LOSSES == ["vicreg", "barlow_twins"]
    for name, card in cards().items():
        framework = small_framework(name)
        options = {option.name for option in card.options_on("resnet")}
        assert card.name == name and card.traits.multi_crop == ("num_globals" in options) == (name in MULTI_CROP)
        assert card.traits.rising_momentum == hasattr(framework, "steps")
        assert card.traits.momentum_keys <= ("momentum" in options)


def test_only_a_queue_gives_negatives_of_earlier_steps():
    for name in FRAMEWORKS:
        negatives = small_framework(name).negatives()
        assert (negatives is not None) == (name in ("moco_v1", "moco_v2"))
    assert negatives is None and small_framework("moco_v2").negatives().shape == (32, 16)


@pytest.mark.parametrize("name", PER_ROW)
def test_weights_of_one_keep_the_loss_and_a_row_without_weight_has_no_pull(name):
    framework, views = small_framework(name).eval(), batch(name)  # no batch statistics: rows meet in the loss only
    plain = framework.loss(views)
    torch.testing.assert_close(framework.loss(views, torch.ones(8)), plain)
    halves = torch.tensor([2.0] * 4 + [0.0] * 4)
    both = framework.loss(views, halves) + framework.loss(views, 2.0 - halves)
    torch.testing.assert_close(both / 2, plain)
    assert not torch.allclose(framework.loss(views, halves), plain, rtol=1e-4)


@pytest.mark.parametrize("name", PER_ROW)
def test_the_loss_of_two_views_is_the_mean_of_the_pairs_rows(name):
    framework, views = small_framework(name).eval(), batch(name)[:2]
    with torch.no_grad():
        outputs = [framework.project(framework.encode(view), framework.encode_target(view)) for view in views]
        rows = framework.pair_losses(*outputs)
        assert rows.shape == (8,) and rows.std() > 0
        torch.testing.assert_close(rows.mean(), framework.loss(views))


@pytest.mark.parametrize("name", BATCH_LOSSES)
def test_a_loss_of_the_whole_batch_has_neither_rows_nor_weights(name):
    framework, views = small_framework(name), batch(name)
    outputs = [framework.project(framework.encode(view), None) for view in views]
    with pytest.raises(TypeError, match="no loss of a single row"):
        framework.pair_losses(*outputs)
    with pytest.raises(TypeError, match="no loss of a single row"):
        framework.loss(views, torch.ones(8))


@pytest.mark.parametrize("name", BATCH_LOSSES)
def test_four_views_cost_the_mean_of_the_four_pairs(name):
    framework = small_framework(name).eval()
    views = batch(name) + batch(name, 1)
    pairs = torch.stack([framework.loss([one, other]) for one in views[:2] for other in views[2:]])
    torch.testing.assert_close(framework.loss(views), pairs.mean())


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_few_steps_on_one_batch_lower_the_loss(name):
    """By the queue or the centre of the beginning: later ones hold the very keys that are asked for."""
    options = {"queue_length": 1024} if name.startswith(("moco_v1", "moco_v2")) else {}
    framework, optimiser = small_training(name, "adamw", **options)
    memory = {key: value.clone() for key, value in framework.named_buffers() if key in ("queue.rows", "centre")}
    with torch.no_grad():
        first = float(framework.loss(batch(name)))
    train(framework, optimiser, [batch(name)] * 8, rate=1e-3)
    framework.load_state_dict(memory, strict=False)
    framework.step = 0
    with torch.no_grad():
        last = float(framework.loss(batch(name)))
    assert last < first - 0.02 and framework.spread() > 0.1


@pytest.mark.parametrize("name", WITH_A_TARGET)
def test_the_momentum_network_takes_no_gradient_and_moves_after_a_step_by_its_momentum(name):
    framework, optimiser = small_training(name, momentum=0.75)
    copies = [(n, p) for n, p in framework.named_parameters() if n.startswith("momentum_")]
    before = {n: p.clone() for n, p in copies}
    train(framework, optimiser, [batch(name)])
    weights = dict(framework.named_parameters())
    assert copies and all(p.grad is None and not p.requires_grad for _, p in copies)
    rising = 1 - 0.25 * 0.5 * (1 + torch.cos(torch.tensor(torch.pi / 20))).item()
    m = 0.75 if name in ("moco_v1", "moco_v2") else rising
    for n, copied in copies:
        expected = m * before[n] + (1 - m) * weights[n.removeprefix("momentum_")]
        torch.testing.assert_close(copied.data, expected.data, rtol=1e-5, atol=1e-7)
    assert any(not torch.equal(p, before[n]) for n, p in copies)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_trained_weight_but_a_frozen_one_gets_a_gradient(name):
    framework = small_framework(name)
    framework.loss(batch(name)).backward()
    without = {n for n, p in framework.named_parameters() if p.requires_grad and p.grad is None}
    assert not without
    framework.before_update()
    frozen = {n for n, p in framework.named_parameters() if p.requires_grad and p.grad is None}
    assert frozen == {"swav": {"prototypes.weight"}, "dino": {"head.last.weight"}}.get(name, set())
    framework.loss(batch(name)).backward()
    framework.step = 2
    framework.before_update()
    assert all(p.grad is not None for p in framework.parameters() if p.requires_grad)


def test_the_encoder_of_a_framework_is_the_backbone_it_was_given():
    for name in FRAMEWORKS:
        backbone = create_backbone("resnet10_narrow", 32)
        weights = dict(backbone.named_parameters())
        framework = create_framework(backbone, resolve(small_config(name)), steps=10, steps_per_epoch=1)
        assert framework.encoder is backbone
        assert all(p is weights[n] for n, p in backbone.named_parameters())
        trained = {id(p) for group in framework.groups(0.1) for p in group["params"]}
        assert trained == {id(p) for p in framework.parameters() if p.requires_grad}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_saved_training_goes_on_bit_by_bit(tmp_path, name):
    options = {"queue_length": 16, "queue_start_epochs": 0.0} if name == "swav" else {}
    steps = [batch(name, step) for step in range(4)]
    framework, optimiser = small_training(name, "lars", **options)
    train(framework, optimiser, steps[:2])
    path = tmp_path / "last.safetensors"
    save_training(path, framework, optimiser, step=framework.step, owner={}, numbers={})
    losses = train(framework, optimiser, steps[2:])
    other, other_optimiser = small_training(name, "lars", **options)
    other.step, _ = load_training(path, other, other_optimiser, {})
    assert train(other, other_optimiser, steps[2:]) == losses
    mine, theirs = framework.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_accumulation_gives_the_gradients_of_the_whole_batch(name):
    def gradients(micro_batch):
        framework, optimiser = small_training(name, "sgd", arch="vit_pico_patch8")
        loss = train(framework, optimiser, [batch(name)], micro_batch=micro_batch, rate=0.0)
        return loss[0], {n: p.grad for n, p in framework.named_parameters() if p.grad is not None}

    whole_loss, whole = gradients(None)
    loss, parts = gradients(3)
    assert loss == pytest.approx(whole_loss, rel=1e-5) and parts.keys() == whole.keys()
    for n, gradient in whole.items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(
            parts[n], gradient, rtol=1e-3, atol=2e-5 * scale + 5e-7, msg=lambda text, n=n: n + text
        )


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_building_and_training_leave_the_global_random_state_alone(name):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    framework, optimiser = small_training(name)
    train(framework, optimiser, [batch(name)])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    again = small_framework(name).state_dict()
    assert all(torch.equal(again[key], value) for key, value in small_framework(name).state_dict().items())


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_autocast_gives_nearly_the_loss_of_fp32(name):
    with torch.no_grad():
        exact = small_framework(name).loss(batch(name))
        with Stepper.make("cpu", "bf16").autocast():
            rough = small_framework(name).loss(batch(name))
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", MULTI_CROP)
@pytest.mark.parametrize("arch", ["resnet10_narrow", "vit_pico_patch8"])
def test_small_crops_pass_both_kinds_of_backbones(name, arch):
    framework = small_framework(name, arch=arch)
    views = batch(name)
    assert [view.shape[-1] for view in views] == [16, 16, 8, 8]
    assert framework.loss(views).isfinite() and framework.features.shape == (8, framework.encoder.num_features)


def test_the_vit_of_dino_begins_as_timm_makes_it_and_all_others_as_in_moco_v3():
    begins = {name: resolve(PretrainConfig(framework=name, arch="vit_small_patch16_224")).init for name in FRAMEWORKS}
    assert begins.pop("dino") == "timm" and set(begins.values()) == {"moco_v3"}
    assert resolve(PretrainConfig(framework="dino", arch="vit_small_patch16_224", init="moco_v3")).init == "moco_v3"


def test_the_kind_of_every_backbone_of_timm_is_known_by_its_name():
    for name in list_models():
        for module, kind in (("vision_transformer", "vit"), ("resnet", "resnet")):
            assert not is_model_in_modules(name, [module]) or kind_of(name) == kind, name
    with pytest.raises(ConfigError, match="num_heads is 4 and arch is 'resnet18', which has none; leave it out"):
        PretrainConfig(arch="resnet18", num_heads=4)


def test_an_option_of_another_framework_is_refused():
    with pytest.raises(ConfigError, match=r"tau is 0\.2: simsiam on a resnet has no such option; it has dim, hidden"):
        small_config("simsiam", tau=0.2)
    with pytest.raises(ConfigError, match="queue_length is 4 and batch_size 8; it must hold a batch"):
        small_config("moco_v2", queue_length=4)
    with pytest.raises(ConfigError, match="bn_splits is 3, which does not divide batch_size 8"):
        small_config("moco_v2", bn_splits=3)
    with pytest.raises(ConfigError, match="bn_splits is 8 and batch_size 8; a batch norm needs 2 rows in a part"):
        small_config("moco_v2", bn_splits=8)
    with pytest.raises(ConfigError, match="bn_splits is 2: moco_v2 on a vit has no such option"):
        small_config("moco_v2", arch="vit_pico_patch8", bn_splits=2)
    with pytest.raises(ConfigError, match="teacher_tau is 0; it must be a finite number above 0"):
        small_config("dino", teacher_tau=0)


@pytest.mark.parametrize(("name", "published"), [("moco_v3", 0.99), ("byol", 0.996), ("moco_v2", 0.999)])
def test_a_momentum_that_was_not_given_fits_the_length_of_the_training(name, published):
    def momentum(steps, **options):
        settings = resolve(small_config(name, **options))
        return create_framework(create_backbone("resnet10_narrow", 16), settings, steps=steps).momentum

    assert momentum(120) < published and momentum(10_000) == published
    assert momentum(120, momentum=published) == published
