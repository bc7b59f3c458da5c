"""`--precision auto`: what it decides, that the identity has it, and that what was begun goes on as it began."""

from dataclasses import replace

import pytest
import torch
from vs2fi_world import make_images

from viewkit.pipelines.engine.execution import Devices
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.training.presets import fastest_precision
from viewkit.pipelines.training.schedules import decided

CPU = Devices(device="cpu")
CONFIG = PretrainConfig(
    framework="simsiam", arch="resnet10_narrow", batch_size=8, steps=2, hidden=16, dim=16, side_px=16, precision="auto"
)


def processor(monkeypatch, **capabilities):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True}, "bf16"),
        ({"amx_bf16": True, "avx512_bf16": False}, "bf16"),
        ({"avx512_f": True, "avx2": True}, "fp32"),
        ({}, "fp32"),
    ],
)
def test_a_processor_that_computes_in_bfloat16_is_used_so(monkeypatch, capabilities, expected):
    processor(monkeypatch, **capabilities)
    assert fastest_precision("cpu") == expected


@pytest.mark.parametrize(("supported", "expected"), [(True, "bf16"), (False, "fp32")])
def test_a_gpu_that_computes_in_bfloat16_is_used_so(monkeypatch, supported, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: supported)
    assert fastest_precision("cuda:0") == expected


def test_the_identity_says_which_and_a_run_goes_on_as_it_began(tmp_path, monkeypatch):
    dataset = make_images(tmp_path / "d")
    processor(monkeypatch, amx_bf16=True)
    run_stage(PretrainStage("a"), CONFIG, dataset, CPU)
    assert dataset.identity("runs/a").config["precision"] == "bf16"
    before = dataset.artifact("runs/a").digest
    processor(monkeypatch)
    run_stage(PretrainStage("a"), CONFIG, dataset, CPU)  # there already, though this machine would choose fp32
    assert dataset.artifact("runs/a").digest == before
    run_stage(PretrainStage("b"), CONFIG, dataset, CPU)
    assert dataset.identity("runs/b").config["precision"] == "fp32"
    run_stage(PretrainStage("c"), replace(CONFIG, precision="fp32"), dataset, CPU)
    numbers = [dataset.artifact(f"runs/{name}").numbers["loss"] for name in "abc"]
    assert numbers[1] == numbers[2] != numbers[0]


def test_an_undecided_precision_reaches_no_training():
    with pytest.raises(AssertionError, match="decided before a training begins"):
        decided("auto")
