import json

import pytest
import timm
import torch
from safetensors.torch import save_file
from small_datasets import CPU
from vs2fi_world import make_images

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.stage import EstimatorStage, batch_at_once
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.models.saved import load_encoder
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.weights.folder import sha256_of
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

SMALL = {"preset": "pico-32", "epochs": 60, "batch_size": 20, "hidden": 32, "dim": 16, "trunk_views": 4}


def weights_of(model, path):
    """A file of a network with its classifier, as timm's published files have one."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = timm.create_model(model, pretrained=False, num_classes=5)
    save_file(network.state_dict(), path)
    return network.state_dict()


def test_a_frozen_trunk_of_timm_keeps_its_weights_and_its_heads_learn(tmp_path):
    dataset = make_images(tmp_path / "data")
    file = tmp_path / "trunk.safetensors"
    published = weights_of("test_vit", file)
    config = EstimatorConfig(**SMALL, trunk="timm:test_vit", side_px=64)
    summary = run_stage(EstimatorStage(file), config, dataset, CPU)
    estimator = Estimator.load(dataset.artifact("estimator"))
    trunk = estimator.network.backbone.trunk.state_dict()
    kept = [name for name in trunk if name != "pos_embed"]  # made for 160 px, resampled for 64
    assert kept and all(torch.equal(trunk[name], published[name]) for name in kept)
    assert trunk["pos_embed"].shape[1] < published["pos_embed"].shape[1] and estimator.side_px == 64
    cfg = timm.get_pretrained_cfg("test_vit", allow_unregistered=True)
    assert (estimator.mean, estimator.std) == (tuple(cfg.mean), tuple(cfg.std))
    lines = [json.loads(line) for line in (dataset.path / "estimator/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < 0.9 * lines[0]["loss"] and len(summary.numbers["exit_losses"]) == estimator.num_exits
    identity = dataset.artifact("estimator").identity
    assert identity.inputs["trunk_weights"] == sha256_of(file) and identity.config["trunk"] == "timm:test_vit"


@pytest.mark.slow
def test_a_run_of_the_dataset_can_be_the_trunk_and_the_chain_goes_on(tmp_path):
    dataset = make_images(tmp_path / "data", count=24)
    run = PretrainConfig(arch="vit_pico_patch8", steps=3, batch_size=8, hidden=32, dim=16)
    run_stage(PretrainStage("first"), run, dataset, CPU)
    config = EstimatorConfig(**{**SMALL, "epochs": 3}, trunk="runs/first")
    assert EstimatorStage().reads(config) == ("images", "runs/first")
    run_stage(EstimatorStage(), config, dataset, CPU)
    trained, _ = load_encoder(dataset.artifact("runs/first"))
    estimator = Estimator.load(dataset.artifact("estimator"))
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(estimator.network.backbone(x), trained(x))
    assert "runs/first" in dataset.artifact("estimator").identity.inputs
    numbers = run_stage(HistogramsStage(), HistogramsConfig(images=24), dataset, CPU).numbers
    assert numbers["negatives"] == 19, "the estimator's batch less one"


@pytest.mark.parametrize(("rows", "size"), [(20, 20), (64, 64), (127, 63), (128, 64), (130, 43), (6400, 64)])
def test_few_images_are_left_over_by_the_last_batch_of_a_trunk(rows, size):
    assert batch_at_once(rows) == size
    assert rows <= 64 or rows % size == min(rows % each for each in range(32, 65))


def test_a_policy_of_several_sides_is_refused_before_any_work(tmp_path):
    with pytest.raises(ConfigError, match="policy is 'dino', whose views are of several sides"):
        EstimatorStage(tmp_path / "x.safetensors").check(EstimatorConfig(trunk="timm:test_vit", policy="dino"))


def test_trunk_and_file_belong_together(tmp_path):
    with pytest.raises(ConfigError, match="trunk is 'timm:test_vit' and --trunk-weights is None"):
        EstimatorStage().check(EstimatorConfig(trunk="timm:test_vit"))
    with pytest.raises(ConfigError, match="nothing else reads one"):
        EstimatorStage(tmp_path / "x.safetensors").check(EstimatorConfig(trunk="runs/a"))
    with pytest.raises(ConfigError, match="trunk is 'clip:x'; it must be timm:NAME or runs/NAME"):
        EstimatorConfig(trunk="clip:x")
    with pytest.raises(ConfigError, match="which decides arch and num_heads"):
        EstimatorConfig(trunk="timm:test_vit", arch="vit_pico_patch8")
    weights_of("test_vit2", tmp_path / "other.safetensors")
    dataset = make_images(tmp_path / "data", count=4)
    config = EstimatorConfig(trunk="timm:test_vit", side_px=64)
    with pytest.raises(DataError, match="weights of another network than timm's 'test_vit'"):
        run_stage(EstimatorStage(tmp_path / "other.safetensors"), config, dataset, CPU)
    assert isinstance(dataset, Dataset)


@pytest.mark.slow
def test_an_estimator_of_another_dataset_is_taken_as_it_is(tmp_path):
    theirs, ours = make_images(tmp_path / "theirs", count=24), make_images(tmp_path / "ours", count=16)
    config = EstimatorConfig(preset="pico-32", steps=3, batch_size=8, hidden=32, dim=16)
    run_stage(EstimatorStage(), config, theirs, CPU)
    run_stage(EstimatorStage(from_dataset=theirs.path), EstimatorConfig(), ours, CPU)
    for name in ("estimator.safetensors", "estimator.json"):
        assert (ours.path / "estimator" / name).read_bytes() == (theirs.path / "estimator" / name).read_bytes()
    inputs = ours.artifact("estimator").identity.inputs
    assert inputs["other_estimator"] == theirs.artifact("estimator").digest
    assert run_stage(HistogramsStage(), HistogramsConfig(), ours, CPU).numbers["negatives"] == 7
    with pytest.raises(ConfigError, match="--from-dataset takes a whole estimator"):
        EstimatorStage(from_dataset=theirs.path).check(EstimatorConfig(trunk="runs/a"))


@pytest.mark.parametrize(
    ("option", "value"), [("steps", 10), ("preset", "vit-s16-224"), ("tau", 0.3), ("seed", 1), ("knn_epochs", 2)]
)
def test_an_estimator_that_is_taken_as_it_is_takes_no_option(tmp_path, option, value):
    stage = EstimatorStage(from_dataset=make_images(tmp_path / "theirs", count=4).path)
    stage.check(EstimatorConfig())
    with pytest.raises(ConfigError, match=f"{option} is {value} and --from-dataset takes a whole estimator"):
        stage.check(EstimatorConfig(**{option: value}))


@pytest.mark.parametrize("option", ["trunk_images", "trunk_views"])
def test_what_a_trunk_alone_reads_is_refused_without_one_and_no_part_of_the_identity(option):
    stage = EstimatorStage()
    assert option not in stage.settings(EstimatorConfig(preset="pico-32"))
    assert stage.settings(EstimatorConfig(preset="pico-32", trunk="runs/a", **{option: 99}))[option] == 99
    with pytest.raises(ConfigError, match=f"{option} is 99: it needs --trunk"):
        stage.check(EstimatorConfig(**{option: 99}))
