from dataclasses import replace

import pytest
import torch
from vs2fi_world import make_estimator, make_genview, make_images

from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.saved import load_encoder
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.training import loop
from viewkit.pipelines.training.monitoring import read_metrics
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.threshold import consistency_threshold
from viewkit.shards.codecs import decode_json
from viewkit.shards.errors import ConfigError, DataError

CPU = Execution(device="cpu")
CONFIG = PretrainConfig(
    arch="vit_pico_patch8", optimiser="sgd", lr=0.05, epochs=3, warmup_epochs=1.0, batch_size=8, hidden=32, dim=16
)
TIMES = ("images_per_s", "wait_share", "render_share")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    dataset = make_images(tmp_path_factory.mktemp("pretrain") / "d")
    make_genview(dataset, missing=("row0003", "row0011"))
    return dataset


@pytest.mark.parametrize(("framework", "arch"), [("moco_v3", "vit_pico_patch8"), ("simsiam", "resnet10_narrow")])
def test_a_run_says_everything_needed_to_use_its_encoder(dataset, framework, arch):
    config = PretrainConfig(
        framework=framework, arch=arch, epochs=3, warmup_epochs=1.0, batch_size=8, hidden=32, dim=16
    )
    summary = run_stage(PretrainStage(framework), config, dataset, CPU)
    artifact = dataset.artifact(f"runs/{framework}")
    assert artifact.files == [
        "checkpoint/last.safetensors", "config.json", "encoder.json", "encoder.safetensors", "metrics.jsonl",
    ]  # fmt: skip
    said = decode_json((artifact.folder / "config.json").read_bytes())
    assert said == PretrainStage(framework).settings(config) == artifact.identity.config
    assert (said["hidden"], said["dim"], said["lr"]) == (32, 16, resolve(config).lr)
    assert not said.keys() & {*config.NOT_IN_IDENTITY, "prototypes"}, "no option of another framework"
    encoder, facts = load_encoder(artifact)
    assert encoder(torch.zeros(2, 3, 32, 32)).shape == (2, encoder.num_features) and facts.arch == arch
    assert summary.numbers["steps"] == 15
    pairs = zip(encoder.parameters(), facts.fresh().parameters(), strict=True)
    assert any(not torch.equal(trained, untrained) for trained, untrained in pairs)


def test_a_run_that_was_killed_goes_on_with_the_same_losses(dataset, monkeypatch):
    whole = run_stage(PretrainStage("whole"), CONFIG, dataset, CPU)
    monkeypatch.setattr(loop, "CHECKPOINT_S", 0.0)
    steps, train_step = [], loop.train_step

    def dying(*arguments):
        steps.append(1)
        if len(steps) == 13:
            raise MemoryError
        return train_step(*arguments)

    monkeypatch.setattr(loop, "train_step", dying)
    with pytest.raises(MemoryError):
        run_stage(PretrainStage("killed"), CONFIG, dataset, CPU)
    assert len(steps) == 13
    resumed = run_stage(PretrainStage("killed"), CONFIG, dataset, CPU)
    assert len(steps) == 13 + 5, "from the checkpoint after step 10"
    assert resumed.numbers == whole.numbers

    def lines(name):
        found = read_metrics(dataset.path / "runs" / name / "metrics.jsonl")
        return [{k: v for k, v in line.items() if k not in TIMES} for line in found]

    assert lines("killed") == lines("whole")
    weights = [(dataset.path / "runs" / name / "encoder.safetensors").read_bytes() for name in ("killed", "whole")]
    assert weights[0] == weights[1]


def test_generated_views_are_read_only_when_asked_for_and_missing_ones_are_counted(dataset):
    assert PretrainStage("x").reads(CONFIG) == ("images",)
    config = replace(CONFIG, alpha=1.0)
    assert PretrainStage("x").reads(config) == ("images", "genview")
    summary = run_stage(PretrainStage("generated"), config, dataset, CPU)
    assert summary.numbers["missing_views"] == 3 * 2
    lines = read_metrics(dataset.path / "runs" / "generated" / "metrics.jsonl")
    assert sum(line["missing_views"] for line in lines) == 6


def test_the_framework_decides_what_is_not_given():
    given = PretrainConfig(arch="vit_pico_patch8", lr=1e-3)
    resnet, vit = resolve(PretrainConfig(framework="simsiam")), resolve(given)
    assert (resnet.policy, resnet.optimiser, resnet.lr, resnet.own["hidden"]) == ("simsiam", "sgd", 0.05, 512)
    assert (vit.policy, vit.optimiser, vit.lr, vit.own["tau"]) == ("moco_v3_vit", "adamw", 1e-3, 0.2)
    assert (given.policy, given.optimiser, given.tau) == (None, None, None), "the options stay as they were given"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 1}, "batch_size is 1; batch norm"),
        ({"alpha": 1.2}, "alpha is 1.2; it must lie in 0 ... 1"),
        ({"lr": 0.0}, "lr is 0.0; it must be a finite number above 0"),
        ({"k_sc": 2.0}, "k_sc is 2.0"),
        ({"k_sc": 0.99, "filter_share": 0.1}, "one decides the other"),
        ({"other_policy": True}, "it needs --select stored, vs2fi, similar, overlap"),
        ({"epochs": 5, "warmup_epochs": 5.0}, "the warm-up must be shorter"),
    ],
)
def test_an_impossible_config_is_refused_at_once(options, message):
    with pytest.raises(ConfigError, match=message):
        PretrainConfig(**options)


def test_the_old_name_of_init_is_refused_with_the_new_one():
    with pytest.raises(ConfigError, match="option '--start' is now '--init'"):
        make_config(PretrainConfig, {"start": "timm"}, "x")


def test_what_does_not_fit_the_data_is_refused_before_any_work(dataset):
    with pytest.raises(ConfigError, match="run name is 'a/b'"):
        PretrainStage("a/b")
    with pytest.raises(ConfigError, match="40 rows are fewer than one batch needs"):
        plan_stage(PretrainStage("p"), replace(CONFIG, batch_size=64), dataset, CPU)
    with pytest.raises(DataError, match="has no input 'pairs'; make it with 'viewkit score"):
        plan_stage(PretrainStage("p"), replace(CONFIG, select="vs2fi"), dataset, CPU)


def test_a_plan_is_measured_and_writes_nothing(dataset):
    plan = plan_stage(PretrainStage("plan"), CONFIG, dataset, CPU)
    assert (plan["rows"], plan["steps"]) == (40, 15) and plan["step_s"] > 0
    assert not (dataset.path / "runs" / "plan").exists()


def test_a_plan_never_makes_a_whole_batch(dataset, monkeypatch):
    sizes = []

    def step(framework, optimiser, batch, schedule, stepper):
        sizes.append(len(batch.views[0]))
        return torch.zeros(())

    monkeypatch.setattr(loop, "train_step", step)
    monkeypatch.setattr(loop, "TIMED_ROWS", {"cpu": (4, 6), "cuda": (4, 6)})
    plan = plan_stage(PretrainStage("plan"), replace(CONFIG, batch_size=32), dataset, CPU)
    assert sizes == [4] * 3 + [6] * 3 and plan["step_s"] > 0


def test_a_plan_stops_when_its_time_is_over(dataset, monkeypatch):
    sizes = []

    def step(framework, optimiser, batch, schedule, stepper):
        sizes.append(len(batch.views[0]))
        return torch.zeros(())

    monkeypatch.setattr(loop, "train_step", step)
    monkeypatch.setattr(loop, "TIMED_S", 0.0)
    plan_stage(PretrainStage("plan"), CONFIG, dataset, CPU)
    assert sizes == [min(8, CONFIG.batch_size)]


def test_seconds_of_a_step_are_carried_over_on_a_line():
    assert loop.extrapolated([(8, 1.0)], 32) == 4.0
    assert loop.extrapolated([(8, 1.0), (16, 1.8)], 256) == pytest.approx(1.8 + 24.0)
    assert loop.extrapolated([(8, 2.0), (16, 1.0)], 32) == 2.0  # noise: in proportion to the larger one


@pytest.mark.slow
def test_a_run_on_scored_pairs_reads_generated_views_when_the_candidates_hold_some(tmp_path):
    dataset = make_images(tmp_path / "d", count=24, shard_rows=12)
    make_genview(dataset, missing=("row0005",))
    make_estimator(dataset)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=24), dataset, CPU)
    run_stage(ScoreStage(), ScoreConfig(rounds=1, candidates="mixed"), dataset, CPU)
    config = replace(CONFIG, select="vs2fi", epochs=2)
    assert PretrainStage("x").reads(config) == ("images", "pairs", "histograms")
    assert PretrainStage("x").reads(replace(config, k_sc=0.99)) == ("images", "pairs")
    summary = run_stage(PretrainStage("mixed"), config, dataset, CPU)
    assert 0 <= summary.numbers["relaxed"] <= 1 and summary.numbers["k_sc"] == pytest.approx(
        consistency_threshold(Histograms.load(dataset.artifact("histograms")), 0.08)[0]
    )
    assert summary.numbers["missing_pairs"] == 0 and 0 < summary.numbers["missing_views"] <= 4  # row0005, two epochs
    assert set(dataset.artifact("runs/mixed").identity.inputs) == {"images", "pairs", "histograms", "policy"}
