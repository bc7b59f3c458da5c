"""VS-2FI's experiments say what the paper says; its numbers are stated here a second time, from the paper."""

import pytest

from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.config import resolve as resolve_estimator
from viewkit.pipelines.experiments.experiment import experiment_names, load_experiment
from viewkit.pipelines.pairs.same_policy import sampled_by
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.views.policies import load_policy

NAMES = [name for name in experiment_names() if name.startswith("vs2fi-")]
PAIRED = [name for name in NAMES if "score" in load_experiment(name).stages]


def run_of(experiment, run):
    return resolve(make_config(PretrainConfig, experiment.run_options(run), experiment.name))


def estimator_of(experiment):
    (options,) = experiment.stages["estimator"]
    given = {name: value for name, value in options.items() if name != "folder"}
    return resolve_estimator(make_config(EstimatorConfig, given, experiment.name))


def test_every_table_and_figure_with_results_has_an_experiment():
    tables = {load_experiment(name).table for name in NAMES}
    assert tables == {
        "table 1", "table 2", "table 3", "figure 6", "figure 7", "figure 8", "sec. 4.5", "appendix E.2, augmentations",
    }  # fmt: skip
    assert len(NAMES) >= 15


@pytest.mark.parametrize("name", PAIRED)
def test_the_estimator_and_the_candidates_are_those_of_section_4_1(name):
    experiment = load_experiment(name)
    policies = []
    if "estimator.from_dataset" in experiment.needs:
        assert experiment.stages["estimator"] == ({},), "taken as it is: no option of its training has an effect"
    else:
        settings = estimator_of(experiment)
        assert (settings.arch, settings.side_px, settings.init) == ("vit_small_patch16_224", 224, "moco_v3")
        assert (settings.epochs, settings.warmup_epochs, settings.lr, settings.weight_decay) == (300, 40.0, 1.5e-4, 0.1)
        assert (settings.tau, settings.momentum, settings.fit_momentum, settings.fit_warmup) == (
            0.2,
            0.99,
            False,
            False,
        )
        on_imagenet = "ImageNet-1K" in experiment.data
        assert settings.batch_size == (4096 if on_imagenet else 1024)
        policies = [settings.policy]
    (histograms,), (score,) = experiment.stages["histograms"], experiment.stages["score"]
    assert histograms["bins"] == 20 and "negatives" not in histograms, "those of the estimator's batch"
    assert (score["num_views"], score["gamma"], score.get("candidates")) == (5, 1 / 64, None)
    policies += [score["policy"], histograms["policy"]]
    assert len({str(sampled_by(load_policy(policy))) for policy in policies}) == 1


@pytest.mark.parametrize("name", PAIRED)
def test_all_runs_of_an_experiment_follow_the_policy_of_its_pairs_and_differ_in_pairs_alone(name):
    experiment = load_experiment(name)
    (score,) = experiment.stages["score"]
    shared = []
    for run in experiment.runs:
        values = run_of(experiment, run).values()
        assert values["policy"] == score["policy"] == "strengthened" and not values["other_policy"]
        assert not (values["fit_warmup"] or values["fit_momentum"]), "the paper's values are explicit"
        if values["select"] in ("stored", "vs2fi"):
            assert score["rounds"] == values["epochs"], "the paper's distribution"
        left_out = ("select", "k_sc", "k_al", "views", "joint_area", "centre_suppression", "pairs")
        shared.append({key: value for key, value in values.items() if key not in left_out})
    assert all(values == shared[0] for values in shared)
    for run in experiment.runs:
        if run == "vs2fi":
            assert (run_of(experiment, run).k_sc, run_of(experiment, run).k_al) == (0.99, 7.0)


@pytest.mark.parametrize(
    ("name", "framework", "arch", "epochs", "batch_size", "rate"),
    [
        ("vs2fi-table1", "moco_v3", "vit_small_patch16_224", 100, 1024, 6e-4),
        ("vs2fi-fig7-mocov2", "moco_v2", "resnet50", 200, 256, 0.03),
        ("vs2fi-fig7-simsiam", "simsiam", "resnet50", 200, 256, 0.05),
        ("vs2fi-fig7-vicreg", "vicreg", "resnet50", 200, 1024, 0.8),
        ("vs2fi-fig7-mocov3", "moco_v3", "vit_small_patch16_224", 300, 1024, 6e-4),
        ("vs2fi-table2-mocov3", "moco_v3", "vit_small_patch16_224", 300, 4096, 2.4e-3),
        ("vs2fi-table2-vicreg", "vicreg", "resnet50", 200, 1024, 0.8),
        ("vs2fi-table3-mocov3", "moco_v3", "vit_small_patch16_224", 300, 1024, 6e-4),
        ("vs2fi-table3-vicreg", "vicreg", "resnet50", 200, 1024, 0.8),
        ("vs2fi-fig8-ksc", "moco_v3", "vit_small_patch16_224", 100, 1024, 6e-4),
        ("vs2fi-fig8-kal", "moco_v3", "vit_small_patch16_224", 100, 1024, 6e-4),
        ("vs2fi-fig8-gamma", "moco_v3", "vit_small_patch16_224", 100, 1024, 6e-4),
        ("vs2fi-augmentations-mocov2", "moco_v2", "resnet50", 200, 256, 0.03),
        ("vs2fi-augmentations-simsiam", "simsiam", "resnet50", 200, 256, 0.05),
    ],
)
def test_epochs_batch_and_learning_rate_are_the_papers(name, framework, arch, epochs, batch_size, rate):
    experiment = load_experiment(name)
    for run in experiment.runs:
        settings = run_of(experiment, run)
        assert (settings.framework, settings.arch) == (framework, arch)
        assert (settings.epochs, settings.batch_size, settings.side_px) == (epochs, batch_size, 224)
        assert settings.peak_lr == pytest.approx(rate)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("vs2fi-table1", {"baseline": 75.2, "consistency": 76.3, "level": 76.7, "vs2fi": 79.7}),
        ("vs2fi-fig7-mocov2", {"baseline": 74.6, "jcrop": 75.4, "hvp": 75.6, "vs2fi": 78.5}),
        ("vs2fi-fig7-simsiam", {"baseline": 83.2, "jcrop": 83.4, "hvp": 84.1, "vs2fi": 85.0}),
        ("vs2fi-fig7-vicreg", {"baseline": 82.7, "jcrop": 83.0, "vs2fi": 83.8}),
        ("vs2fi-fig7-mocov3", {"baseline": 85.4, "jcrop": 85.4, "hvp": 86.1, "vs2fi": 86.3}),
        ("vs2fi-augmentations-mocov2", {"plain": 72.7, "strengthened": 74.6}),
        ("vs2fi-augmentations-simsiam", {"plain": 80.9, "strengthened": 83.2}),
        ("vs2fi-table2-mocov3", {"baseline": 73.2, "vs2fi": 73.5}),
        ("vs2fi-table2-vicreg", {"baseline": 70.8, "vs2fi": 71.5}),
        ("vs2fi-table3-mocov3", {"baseline": 69.2, "vs2fi": 71.2}),
        ("vs2fi-table3-vicreg", {"baseline": 66.9, "vs2fi": 68.0}),
    ],
)
def test_the_published_numbers_are_the_papers(name, numbers):
    assert {each.run: each.value for each in load_experiment(name).published} == numbers


def test_the_arms_of_table_1_use_one_indicator_or_both():
    experiment = load_experiment("vs2fi-table1")
    arms = {run: run_of(experiment, run) for run in experiment.runs}
    assert (arms["consistency"].k_sc, arms["consistency"].k_al) == (0.99, 1.0)
    assert (arms["level"].k_sc, arms["level"].k_al) == (0.0, 7.0)
    assert (arms["baseline"].select, arms["stored"].select) == ("random", "stored")


def test_rivals_of_figure_7_have_the_papers_parameters():
    for name in ("mocov2", "simsiam", "mocov3"):
        experiment = load_experiment(f"vs2fi-fig7-{name}")
        hvp, jcrop = run_of(experiment, "hvp"), run_of(experiment, "jcrop")
        assert (hvp.select, hvp.views) == ("hard", 5)
        assert (jcrop.select, jcrop.joint_area) == ("random", 0.0)


def test_every_gamma_of_figure_8_has_its_own_column():
    experiment = load_experiment("vs2fi-fig8-gamma")
    columns = {table["column"]: table["gamma"] for table in experiment.stages["rescore"]}
    read = {run_of(experiment, run).pairs for run in experiment.runs}
    assert read == {"pairs", *columns}
    assert all(column == f"pairs_gamma{round(1 / gamma)}" for column, gamma in columns.items())
