import json
import shutil
from dataclasses import asdict, replace

import pytest
import torch
from vs2fi_world import make_images, pictures, write_column

from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.estimator.config import PRESETS, EstimatorConfig, resolve
from viewkit.pipelines.estimator.stage import EstimatorStage, create_exit_moco_v3, optimisation_of
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.config import resolve as resolve_pretrain
from viewkit.pipelines.training.monitoring import read_metrics
from viewkit.pipelines.training.optimisers import decay_all
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import make_folder
from viewkit.shards.row import Row

CPU = Execution(device="cpu")
CONFIG = EstimatorConfig(
    preset="pico-32", arch="vit_pico_patch8", epochs=3, warmup_epochs=1.0, batch_size=8, hidden=32, dim=16
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    dataset = Dataset(tmp_path_factory.mktemp("estimator") / "d")
    make_folder(dataset.path)
    rows = [Row(f"row{k:04d}", {"png": png, "cls": str(k % 3).encode()}) for k, png in enumerate(pictures(40))]
    write_column(dataset, "images", rows, 16)
    return dataset, run_stage(EstimatorStage(), CONFIG, dataset, CPU)


def test_the_stage_writes_an_estimator_that_loads(trained):
    dataset, summary = trained
    estimator = Estimator.load(dataset.artifact("estimator"))
    assert (estimator.side_px, estimator.tau, estimator.num_exits) == (32, 0.2, 6)
    assert estimator.facts["encoder"] == "base" and len(summary.numbers["exit_losses"]) == 6
    assert 0 <= summary.numbers["knn_top1"] <= 1
    assert dataset.artifact("estimator").files == ["estimator.json", "estimator.safetensors", "metrics.jsonl"]
    assert [line["step"] for line in read_metrics(dataset.path / "estimator" / "metrics.jsonl")] == [10, 15]


def test_embeddings_have_unit_norm_and_belong_to_the_network_that_was_written(trained):
    dataset, _ = trained
    estimator = Estimator.load(dataset.path / "estimator")
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    top, exits = estimator.embed(x)
    assert top.shape == (3, 16) and exits.shape == (3, 6, 16)
    torch.testing.assert_close(top.norm(dim=-1), torch.ones(3))
    torch.testing.assert_close(exits.norm(dim=-1), torch.ones(3, 6))
    features = estimator.network.backbone(x)
    torch.testing.assert_close(torch.nn.functional.normalize(estimator.network.projector(features), dim=1), top)
    encoder = open_encoder("estimator", dataset)
    torch.testing.assert_close(encoder.features(x), features)
    assert encoder.tokens(x).shape == (3, 16, 128)
    torch.testing.assert_close(estimator.embed(x[1:2]).top[0], top[1], rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match="views have 48 px, and it was trained with 32 px"):
        estimator.embed(torch.zeros(1, 3, 48, 48))


def test_the_facts_of_older_estimators_call_the_initialisation_start(trained, tmp_path):
    dataset, _ = trained
    shutil.copytree(dataset.path / "estimator", tmp_path / "older")
    facts = json.loads((tmp_path / "older" / "estimator.json").read_text())
    facts["start"] = facts.pop("init")
    (tmp_path / "older" / "estimator.json").write_text(json.dumps(facts))
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ours, theirs = (Estimator.load(folder).embed(x) for folder in (dataset.path / "estimator", tmp_path / "older"))
    assert torch.equal(ours.top, theirs.top) and torch.equal(ours.exits, theirs.exits)


def test_pairs_that_overlap_give_another_estimator(trained, tmp_path):
    dataset, _ = trained
    other = Dataset(tmp_path / "d")
    shutil.copytree(dataset.path / "images", other.path / "images")
    run_stage(
        EstimatorStage(), replace(CONFIG, pairs="overlap", policy="mosaic", steps=2, warmup_epochs=0.0), other, CPU
    )
    facts = Estimator.load(other.artifact("estimator")).facts
    assert (facts["pairs"], facts["policy"]) == ("overlap", "mosaic")


def test_a_second_run_finds_the_work_done(trained):
    dataset, summary = trained
    again = run_stage(EstimatorStage(), CONFIG, dataset, CPU)
    assert again.written == 0 and again.numbers == summary.numbers


def test_equal_configs_give_equal_weights(tmp_path):
    other = make_images(tmp_path / "d")
    config = replace(CONFIG, steps=3, warmup_epochs=0.0)
    run_stage(EstimatorStage(), config, other, CPU)
    first = (other.path / "estimator" / "estimator.safetensors").read_bytes()
    other = make_images(tmp_path / "e")
    summary = run_stage(EstimatorStage(), config, other, CPU)
    assert (other.path / "estimator" / "estimator.safetensors").read_bytes() == first
    assert "knn_top1" not in summary.numbers


def test_a_plan_says_rows_steps_and_seconds_and_writes_nothing(tmp_path):
    dataset = make_images(tmp_path / "d")
    plan = plan_stage(EstimatorStage(), CONFIG, dataset, CPU)
    assert (plan["rows"], plan["steps"]) == (40, 15) and plan["step_s"] > 0
    assert not (dataset.path / "estimator").exists()


def test_presets_fill_what_is_not_given_and_the_identity_holds_the_values():
    config = EstimatorConfig(preset="vit-s16-224", lr=1e-3)
    values = EstimatorStage().settings(config)
    preset = asdict(replace(PRESETS["vit-s16-224"], lr=1e-3))
    assert {name: values[name] for name in preset} == preset and values["preset"] == "vit-s16-224"
    assert values.keys() - preset.keys() == {
        "preset", "precision", "init", "num_heads", "steps", "seed", "fit_warmup", "fit_momentum",
        "trunk",
    }  # fmt: skip
    assert values["fit_warmup"] and values["fit_momentum"] and values["trunk"] is None
    assert not EstimatorStage().settings(replace(config, momentum=0.9))["fit_momentum"]
    assert (config.arch, config.epochs) == (None, None), "the options stay as they were given"
    assert resolve(config) == resolve(config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 1}, "batch_size is 1; batch norm and negatives need at least 2"),
        ({"tau": 0.0}, "tau is 0.0; it must be a finite number above 0"),
        ({"momentum": 1.5}, "momentum is 1.5; it must lie in 0 ... 1"),
        ({"seed": -1}, "seed is -1"),
        ({"epochs": 3, "warmup_epochs": 3.0}, "the warm-up must be shorter"),
    ],
)
def test_an_impossible_config_is_refused_at_once(options, message):
    with pytest.raises(ConfigError, match=message):
        EstimatorConfig(preset="pico-32", **options)


def test_options_that_do_not_fit_the_data_are_refused_before_any_work(tmp_path):
    dataset = make_images(tmp_path / "d")
    for options, message in (
        ({"batch_size": 64}, "40 rows are fewer than one batch needs"),
        ({"side_px": 36}, "side_px is 36, which 8 px patches"),
        ({"policy": "no_such"}, "policy is 'no_such'"),
        ({"steps": 3}, "the training has 3 steps"),
    ):
        with pytest.raises(ConfigError, match=message):
            plan_stage(EstimatorStage(), replace(CONFIG, **options), dataset, CPU)
    with pytest.raises(DataError, match=r"has no input 'images'|there is no such dataset"):
        run_stage(EstimatorStage(), CONFIG, Dataset(tmp_path / "none"), CPU)


def test_the_estimator_is_optimised_as_a_moco_v3_run_is():
    for arch in ("vit_pico_patch8", "resnet10_narrow"):
        ours = optimisation_of(resolve(EstimatorConfig(preset="pico-32", arch=arch)))
        assert ours.decay_all == resolve_pretrain(PretrainConfig(framework="moco_v3", arch=arch)).decay_all
    groups = create_groups(resolve(CONFIG))
    assert {group["weight_decay"] for group in groups} == {0.1}, "biases, norms and class tokens decay, too"


def create_groups(settings):
    optimisation = optimisation_of(settings)
    groups = create_exit_moco_v3(settings, 10).groups(optimisation.weight_decay)
    return decay_all(groups, optimisation.weight_decay) if optimisation.decay_all else groups


@pytest.mark.parametrize(("options", "momentum"), [({}, 0.9356), ({"momentum": 0.99}, 0.99)])
def test_the_momentum_fits_120_steps_unless_it_is_given(options, momentum):
    settings = resolve(replace(CONFIG, **options))
    assert create_exit_moco_v3(settings, 120).momentum == pytest.approx(momentum, abs=2e-3)
    assert create_exit_moco_v3(settings, 2000).momentum == 0.99
