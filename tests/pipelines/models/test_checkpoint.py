import json
from dataclasses import asdict

import pytest
import torch
from torch import nn

from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.checkpoint import (
    load_tensors,
    load_training,
    load_weights,
    save_tensors,
    save_training,
)
from viewkit.pipelines.models.saved import EncoderFacts, load_encoder, read_facts, save_encoder
from viewkit.pipelines.training.optimisers import create_optimiser, parameter_groups, set_rates
from viewkit.shards.errors import DataError, RefusedError

MEAN = (0.5, 0.5, 0.5)


def a_step(module, optimiser, x):
    set_rates(optimiser, rate=0.1, peak=0.1)
    optimiser.zero_grad()
    module(x).square().mean().backward()
    optimiser.step()


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_loaded_training_goes_on_bit_by_bit(tmp_path, name):
    x = torch.randn(4, 3, 8, 8)

    def fresh():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
        module = module.to(memory_format=torch.channels_last)
        return module, create_optimiser(name, parameter_groups(module, weight_decay=0.1))

    module, optimiser = fresh()
    for _ in range(3):
        a_step(module, optimiser, x)
    save_training(
        tmp_path / "c" / "last.safetensors", module, optimiser, step=3, owner={"lr": 0.1}, numbers={"loss": 0.5}
    )
    a_step(module, optimiser, x)
    other, other_optimiser = fresh()
    assert load_training(tmp_path / "c" / "last.safetensors", other, other_optimiser, {"lr": 0.1}) == (3, {"loss": 0.5})
    a_step(other, other_optimiser, x)
    for ours, theirs in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_checkpoint_of_another_training_is_refused_with_what_differs(tmp_path):
    module = nn.Linear(2, 2)
    optimiser = create_optimiser("sgd", parameter_groups(module, weight_decay=0.0))
    path = tmp_path / "last.safetensors"
    save_training(path, module, optimiser, step=3, owner={"framework": "moco_v3", "lr": 0.1}, numbers={})
    with pytest.raises(RefusedError, match="framework was moco_v3, is simsiam"):
        load_training(path, module, optimiser, {"framework": "simsiam", "lr": 0.1})


def test_a_cut_or_foreign_file_is_a_data_error(tmp_path):
    path = tmp_path / "w.safetensors"
    save_tensors(path, {"a": torch.zeros(100)})
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(DataError, match="damaged, or not written by viewkit"):
        load_tensors(path)
    with pytest.raises(DataError, match="missing"):
        load_tensors(tmp_path / "absent")


def test_weights_of_another_network_are_named(tmp_path):
    with pytest.raises(DataError, match=r"lacks 1 \(first: bias\), has another shape for 1 \(first: weight\)"):
        load_weights(nn.Linear(2, 2), {"weight": torch.zeros(3, 3)}, tmp_path / "x")


def test_equal_tensors_give_equal_bytes(tmp_path):
    tensors = {"b": torch.arange(6.0).reshape(2, 3).T, "a": torch.ones(2)}
    save_tensors(tmp_path / "1", tensors)
    save_tensors(tmp_path / "2", dict(reversed(tensors.items())))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@pytest.mark.parametrize("arch", ["vit_pico_patch8", "resnet10_narrow"])
@torch.inference_mode()
def test_an_encoder_comes_back_as_it_was_saved(tmp_path, arch):
    facts = EncoderFacts(arch=arch, side_px=32, init="moco_v3", num_heads=None, seed=5, mean=MEAN, std=MEAN)
    backbone = create_backbone(arch, 32, seed=9).eval()
    save_encoder(tmp_path, backbone, facts)
    loaded, found = load_encoder(tmp_path)
    x = torch.randn(2, 3, 32, 32)
    assert found == facts and torch.equal(loaded(x), backbone(x))
    assert torch.equal(facts.fresh().eval()(x), create_backbone(arch, 32, seed=5).eval()(x))


def test_the_facts_of_older_files_call_the_initialisation_start(tmp_path):
    facts = EncoderFacts(arch="resnet18", side_px=32, init="timm", num_heads=None, seed=0, mean=MEAN, std=MEAN)
    older = {**asdict(facts), "start": "timm"}
    del older["init"]
    (tmp_path / "encoder.json").write_text(json.dumps(older))
    assert read_facts(tmp_path / "encoder.json") == facts


def test_an_encoder_has_the_names_of_timm(tmp_path):
    import timm

    facts = EncoderFacts(arch="resnet18", side_px=32, init="timm", num_heads=None, seed=0, mean=MEAN, std=MEAN)
    save_encoder(tmp_path, create_backbone("resnet18", 32), facts)
    weights, _ = load_tensors(tmp_path / "encoder.safetensors")
    timm.create_model("resnet18", pretrained=False, num_classes=0).load_state_dict(weights)


def test_equal_tensors_and_state_give_equal_bytes(tmp_path):
    tensors, state = {"a": torch.arange(3.0), "b": torch.ones(2, dtype=torch.bfloat16)}, {"x": 1, "y": [2]}
    for name in ("one", "two", "three", "four"):
        save_tensors(tmp_path / name, tensors, state)
    assert len({(tmp_path / name).read_bytes() for name in ("one", "two", "three", "four")}) == 1


def test_any_flipped_bit_of_a_file_is_found(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"a": torch.arange(5.0), "b": torch.ones(2, 3)}, {"step": 3})
    raw = path.read_bytes()
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            load_tensors(path)
