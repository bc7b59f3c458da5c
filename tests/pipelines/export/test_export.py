import importlib.util
import json
import re
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from safetensors.torch import load_file

from viewkit.pipelines.export.export import export_encoder
from viewkit.pipelines.models.saved import EncoderFacts, load_encoder, save_encoder
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.shards.artifact import IDENTITY, Artifact, finish_artifact
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.files import make_folder
from viewkit.shards.identity import Identity, write_identity

ROOT = Path(__file__).parents[3]


def make_run(folder, arch="vit_pico_patch8", side_px=32, stage="pretrain", finished=True):
    """A run whose encoder has weights, and batch-norm statistics, that no fresh network has."""
    make_folder(folder)
    facts = EncoderFacts(
        arch=arch, side_px=side_px, init="moco_v3", num_heads=None, seed=3, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)
    )
    backbone = facts.fresh()
    generator = torch.Generator().manual_seed(0)
    for tensor in backbone.state_dict().values():
        if tensor.is_floating_point():
            tensor += 0.02 * torch.rand(tensor.shape, generator=generator)
    save_encoder(folder, backbone, facts)
    identity = Identity(stage, 1, resolve(PretrainConfig(arch=arch)).values(), {}, {})
    write_identity(folder / IDENTITY, identity)
    if finished:
        finish_artifact(folder, identity.digest, {}, ())
    return folder


def views(side_px, count=3):
    return torch.rand(count, 3, side_px, side_px, generator=torch.Generator().manual_seed(1))


def features_of(network, facts, x):
    """As the facts say: ResNets run in channels-last layout."""
    layout = torch.channels_last if facts["memory_format"] == "channels_last" else torch.contiguous_format
    with torch.no_grad():
        return network.eval().to(memory_format=layout)(x.contiguous(memory_format=layout))


def from_facts(folder):
    """The exported network, made by a reader of the JSON file who has timm and no viewkit."""
    facts = json.loads((folder / "encoder.json").read_text())
    network = timm.create_model(facts["timm_model"], num_classes=0, **facts["timm_kwargs"])
    if facts["stem"]:
        stem = facts["stem"]
        network.conv1 = torch.nn.Conv2d(
            3, network.conv1.out_channels, stem["kernel_px"], stride=stem["stride"], padding=stem["padding"], bias=False
        )
        network.maxpool = torch.nn.Identity()
    network.load_state_dict(load_file(folder / "encoder.safetensors"))
    return network, facts


@pytest.mark.parametrize(
    ("arch", "side_px"),
    [
        ("vit_pico_patch8", 32),
        ("vit_tiny_patch16_224", 32),
        ("resnet18", 64),
        ("resnet10_narrow", 32),
        pytest.param("vit_small_patch32_224", 64, marks=pytest.mark.slow),
        pytest.param("resnet18_cifar", 32, marks=pytest.mark.slow),
        pytest.param("resnet50", 64, marks=pytest.mark.slow),
        pytest.param("resnet50_cifar", 32, marks=pytest.mark.slow),
        pytest.param("vit_small_patch8", 32, marks=pytest.mark.slow),
    ],
)
def test_timm_alone_rebuilds_the_encoder_and_gives_the_same_features_bit_for_bit(tmp_path, arch, side_px):
    run = make_run(tmp_path / "run", arch, side_px)
    export_encoder(run, tmp_path / "out" / "encoder.safetensors")
    network, facts = from_facts(tmp_path / "out")
    ours, _ = load_encoder(run)
    x = views(side_px)
    with torch.no_grad():
        wanted = ours(x)
    assert torch.equal(features_of(network, facts, x), wanted)
    assert wanted.shape == (3, facts["num_features"])


@pytest.mark.parametrize("arch", ["resnet18", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_torchvision_lacks_only_its_classifier_and_gives_the_same_features(tmp_path, arch):
    run = make_run(tmp_path / "run", arch, 64)
    facts = export_encoder(run, tmp_path / "encoder.safetensors", "torchvision")
    network = torchvision.models.get_model(facts["torchvision_model"], weights=None)
    report = network.load_state_dict(load_file(tmp_path / "encoder.safetensors"), strict=False)
    assert report.missing_keys == ["fc.weight", "fc.bias"] and report.unexpected_keys == []
    network.fc = torch.nn.Identity()
    x = views(64)
    with torch.no_grad():
        wanted = load_encoder(run)[0](x)
    assert torch.equal(features_of(network, facts, x), wanted)


@pytest.mark.parametrize("arch", ["vit_pico_patch8", "resnet10_narrow"])
def test_the_python_of_the_page_loads_the_export_as_it_stands(tmp_path, monkeypatch, arch):
    load, stem = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "evaluate.md").read_text(), re.DOTALL)
    run = make_run(tmp_path / "run", arch)
    export_encoder(run, tmp_path / "encoder.safetensors")
    monkeypatch.chdir(tmp_path)
    before, last = load.rstrip().rsplit("\n", 1)
    names = {"torch": torch}
    exec("\n".join([before, stem if arch.startswith("resnet") else "", last]), names)  # noqa: S102
    with torch.no_grad():
        wanted = load_encoder(run)[0](views(32))
    assert torch.equal(features_of(names["network"], names["facts"], views(32)), wanted)


def test_the_facts_say_what_the_inputs_must_look_like(tmp_path):
    facts = export_encoder(make_run(tmp_path / "run"), tmp_path / "encoder.safetensors")
    assert facts == json.loads((tmp_path / "encoder.json").read_text())
    assert (facts["side_px"], facts["mean"], facts["std"]) == (32, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
    assert facts["timm_kwargs"] == {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 6, "num_heads": 4}
    assert facts["run"] == "run"


def test_a_repeated_export_writes_the_same_bytes_and_another_runs_weights_are_not_overwritten(tmp_path):
    file = tmp_path / "encoder.safetensors"
    export_encoder(make_run(tmp_path / "run"), file)
    before = file.read_bytes()
    export_encoder(tmp_path / "run", file)
    assert file.read_bytes() == before
    with pytest.raises(RefusedError, match="holds something else"):
        export_encoder(make_run(tmp_path / "other", "resnet10_narrow"), file)
    assert file.read_bytes() == before


def fails(kind, match, run, to="encoder.safetensors", names="timm"):
    with pytest.raises(kind, match=match) as found:
        export_encoder(run, run.parent / to, names)
    assert "\n" not in str(found.value)


def test_architectures_that_torchvision_lacks_are_refused_by_name(tmp_path):
    fails(ConfigError, "the run is of 'vit_pico_patch8'", make_run(tmp_path / "run"), names="torchvision")
    fails(
        ConfigError, "the run is of 'resnet10_narrow'", make_run(tmp_path / "b", "resnet10_narrow"), names="torchvision"
    )
    assert not (tmp_path / "encoder.safetensors").exists()


def test_a_folder_that_is_no_run_is_said_so(tmp_path):
    fails(DataError, "is no run; give the folder of one", tmp_path / "none")
    fails(DataError, "was written by 'viewkit evaluate'", make_run(tmp_path / "eval", stage="evaluate"))


def test_an_unfinished_run_and_one_without_encoder_name_the_next_step(tmp_path):
    fails(DataError, "not finished; rerun 'viewkit pretrain'", make_run(tmp_path / "run", finished=False))
    folder = tmp_path / "empty"
    make_folder(folder)
    identity = Identity("pretrain", 1, {}, {}, {})
    write_identity(folder / IDENTITY, identity)
    finish_artifact(folder, identity.digest, {}, ())
    fails(DataError, "holds no file 'encoder.json'; rerun 'viewkit pretrain'", folder)


def test_a_file_that_is_no_safetensors_file_is_refused_before_anything_is_read(tmp_path):
    fails(ConfigError, "give a name ending in .safetensors", tmp_path / "none", to="encoder.pth")
    fails(ConfigError, "--names is 'keras'", tmp_path / "none", names="keras")


def test_the_command_prints_how_to_load_the_file(tmp_path, capsys):
    from viewkit.cli.export import export

    export(make_run(tmp_path / "run"), tmp_path / "encoder.safetensors")
    said = capsys.readouterr().out
    assert "fits timm.create_model('vit_tiny_patch16_224', num_classes=0, img_size=32, patch_size=8" in said
    export(tmp_path / "run", tmp_path / "encoder.safetensors", as_json=True)
    assert json.loads(capsys.readouterr().out)["arch"] == "vit_pico_patch8"


@pytest.mark.parametrize("arch", ["resnet18", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_detectron2s_names_hold_the_same_tensors_in_a_file_that_is_no_pickle_of_code(tmp_path, arch):
    run = make_run(tmp_path / "runs" / "mine", arch, 64)
    facts = export_encoder(run, tmp_path / "encoder.pth", "detectron2")
    weights = torch.load(tmp_path / "encoder.pth", weights_only=True)
    own = load_encoder(Artifact(run, "runs/mine"))[0].trunk.state_dict()
    own = {name: tensor for name, tensor in own.items() if not name.endswith("num_batches_tracked")}
    assert len(weights) == len(own) and all(isinstance(each, torch.Tensor) for each in weights.values())
    for theirs, ours in {
        "stem.conv1.weight": "conv1.weight", "stem.conv1.norm.running_var": "bn1.running_var",
        "res2.0.conv1.weight": "layer1.0.conv1.weight", "res2.1.conv2.norm.bias": "layer1.1.bn2.bias",
        "res5.0.shortcut.weight": "layer4.0.downsample.0.weight",
        "res3.0.shortcut.norm.running_mean": "layer2.0.downsample.1.running_mean",
    }.items():  # fmt: skip
        assert torch.equal(weights[theirs], own[ours])
    assert all(re.match(r"(stem\.conv1|res[2-5]\.\d+\.(conv\d|shortcut))\.(norm\.)?[a-z_]+$", name) for name in weights)
    assert facts["detectron2"]["MODEL.RESNETS.DEPTH"] == int(arch.removeprefix("resnet"))
    assert facts["detectron2"].get("MODEL.RESNETS.RES2_OUT_CHANNELS") == (
        64 if arch in ("resnet18", "resnet34") else None
    )
    assert facts["detectron2"]["MODEL.PIXEL_MEAN"] == [255 * 0.5, 255 * 0.4, 255 * 0.3]
    again = (tmp_path / "encoder.pth").read_bytes()
    export_encoder(run, tmp_path / "encoder.pth", "detectron2")
    assert (tmp_path / "encoder.pth").read_bytes() == again


def test_what_detectron2_has_not_is_refused_by_name(tmp_path):
    small = make_run(tmp_path / "runs" / "small", "resnet18_cifar")
    with pytest.raises(ConfigError, match="the run is of 'resnet18_cifar' \\(the stem is another one\\)"):
        export_encoder(small, tmp_path / "encoder.pth", "detectron2")
    with pytest.raises(ConfigError, match=r"give a name ending in \.pth"):
        export_encoder(small, tmp_path / "encoder.safetensors", "detectron2")
    with pytest.raises(ConfigError, match=r"give a name ending in \.safetensors"):
        export_encoder(small, tmp_path / "encoder.pth", "timm")


@pytest.mark.slow
def test_the_detection_example_puts_the_encoder_under_a_feature_pyramid(tmp_path):
    export_encoder(
        make_run(tmp_path / "runs" / "mine", "resnet18", 64), tmp_path / "encoder.safetensors", "torchvision"
    )
    path = ROOT / "docs" / "examples" / "detection_fpn.py"
    spec = importlib.util.spec_from_file_location("example_detection_fpn", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model = example.detector(tmp_path / "encoder.safetensors", num_classes=3, side_px=(64, 64))
    own = load_file(tmp_path / "encoder.safetensors")
    assert torch.equal(model.backbone.body.layer4[1].conv2.weight, own["layer4.1.conv2.weight"])
    assert model.transform.image_mean == [0.5, 0.4, 0.3]
    levels = model.backbone(views(64, 1))
    assert [tuple(level.shape[1:]) for level in levels.values()][:4] == [(256, s, s) for s in (16, 8, 4, 2)]
    target = {"boxes": torch.tensor([[5.0, 5.0, 40.0, 50.0]]), "labels": torch.tensor([1])}
    losses = model.train()([views(64, 1)[0]], [target])
    sum(losses.values()).backward()
    assert all(bool(loss.isfinite()) for loss in losses.values())
