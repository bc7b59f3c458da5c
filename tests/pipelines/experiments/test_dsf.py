"""DSF's experiments say what the paper says; its numbers are stated here a second time, from the paper."""

import pytest

from viewkit.cli.chain import chain_of
from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.experiments.experiment import experiment_names, load_experiment
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.views.policies import load_policy

NAMES = [name for name in experiment_names() if name.startswith("dsf-")]
RUNS = [(name, run) for name in NAMES for run in load_experiment(name).runs]


def values_of(name, run="dsf"):
    return resolve(make_config(PretrainConfig, load_experiment(name).run_options(run), name)).values()


def test_every_results_table_and_figure_of_trainings_has_an_experiment():
    tables = {load_experiment(name).table for name in NAMES}
    figures = {"figure 3", "figure 4", "figure 5"}
    assert tables == {"table 1", "table 3", "table 4", *figures, "appendix C.3", "theorem 1"}
    assert len(NAMES) >= 8 and {load_experiment(name).paper for name in NAMES} == {"DSF"}


@pytest.mark.parametrize("name", NAMES)
def test_its_chain_can_be_planned(name, tmp_path):
    chain_of(load_experiment(name), "images", tmp_path / "d", tmp_path / "t", "test")


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_every_run_follows_one_of_two_recipes(name, run):
    values = values_of(name, run)
    assert not values["fit_warmup"] and not values["fit_momentum"] and not values["norms_per_view"]
    assert values["crop"] == "torchvision"
    assert (values["momentum"], values["select"], values["alpha"]) == (0.99, "random", 0.0)
    if values["arch"] == "resnet18_cifar":
        assert (values["framework"], values["policy"], values["side_px"]) == ("moco_v2", "dsf_cifar", 32)
        assert (values["queue_length"], values["dim"], values["bn_splits"], values["hidden"]) == (4096, 128, 8, 512)
        assert (values["optimiser"], values["weight_decay"], values["symmetric"]) == ("sgd", 5e-4, False)
        assert (values["warmup_epochs"], values["tau"]) == (0.0, 0.1088 if run == "cosine" else 0.1)
        assert load_policy(values["policy"]).views[0].p_randaugment == 0.5
    else:
        assert (values["framework"], values["arch"]) == ("moco_v3", "vit_small_patch16_224")
        assert (values["optimiser"], values["weight_decay"], values["dim"]) == ("adamw", 0.1, 256)
        assert load_policy(values["policy"]).views[0].area == (0.08, 1.0)
    if name not in ("dsf-c3", "dsf-table4") and values["multi_view"] == "dsf":
        assert (values["dsf_shrink"], values["dsf_tau"], values["dsf_exact"], values["dsf_plain_kappa"]) == (
            0.95, 1.0, False, False,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "epochs", "batch_size", "rate", "baseline"),
    [
        ("dsf-table1-cifar10", 250, 256, 0.06, (800, 1024, 0.12)),
        ("dsf-table1-imagenet100", 100, 128, 2.5e-3, (300, 512, 3e-4)),
    ],
)
def test_table_1_compares_equal_numbers_of_views(name, epochs, batch_size, rate, baseline):
    runs = {run: values_of(name, run) for run in load_experiment(name).runs}
    assert set(runs) == {"baseline", "loss_avg", "feature_avg", "dsf"}
    for run, values in runs.items():
        views = 2 * values["views_per_side"]
        assert values["batch_size"] * views == batch_size * 8 and views == (2 if run == "baseline" else 8)
    dsf, plain = runs["dsf"], runs["baseline"]
    assert (dsf["epochs"], dsf["batch_size"], dsf["multi_view"]) == (epochs, batch_size, "dsf")
    assert dsf["lr"] * batch_size / 256 == pytest.approx(rate)
    assert (plain["epochs"], plain["batch_size"], plain["lr"] * plain["batch_size"] / 256) == pytest.approx(baseline)
    assert [runs[run]["multi_view"] for run in ("loss_avg", "feature_avg")] == ["loss_avg", "fea_avg"]
    assert runs["loss_avg"]["epochs"] == runs["feature_avg"]["epochs"] == epochs


TABLE_1 = {
    "dsf-table1-imagenet100": [74.08, 83.42, 76.62, 84.06, 76.94, 83.82, 79.00, 85.80],
    "dsf-table1-cifar10": [88.44, 88.10, 88.28, 88.58, 87.47, 88.02, 90.04, 91.21],
}


MCE = {
    "dsf-table1-imagenet100": [36.67, 38.27, 39.42, 33.15],
    "dsf-table1-cifar10": [19.03, 19.90, 19.80, 16.20],
}


@pytest.mark.parametrize("name", list(TABLE_1))
def test_numbers_of_table_1(name):
    found = load_experiment(name).published
    clean, corrupted = found[:8], found[8:]
    assert [each.value for each in clean] == TABLE_1[name] and [each.value for each in corrupted] == MCE[name]
    runs = ["baseline", "loss_avg", "feature_avg", "dsf"]
    assert [each.run for each in clean[::2]] == [each.run for each in corrupted] == runs
    assert {each.metric for each in clean[::2]} == {"knn200"} and {each.of for each in corrupted} == {
        "mce_unnormalised"
    }
    (options,) = load_experiment(name).stages["evaluate"]
    assert options["corruptions"] == "dsf"


TABLE_3 = {
    "cifar10": [96.36, 96.76, 96.72, 97.11],
    "cifar100": [80.80, 81.55, 81.06, 81.76],
    "pets": [84.11, 83.11, 82.80, 84.17],
    "aircraft": [47.58, 47.17, 46.45, 49.49],
    "dtd": [59.68, 58.67, 57.66, 60.59],
}


@pytest.mark.parametrize("data", list(TABLE_3))
def test_numbers_of_table_3(data):
    experiment = load_experiment(f"dsf-table3-{data}")
    assert [each.value for each in experiment.published] == TABLE_3[data]
    assert {(each.metric, each.folder) for each in experiment.published} == {("finetune", data)}
    assert experiment.runs == load_experiment("dsf-table1-imagenet100").runs and "evaluate.train" in experiment.needs


def test_temperatures_and_numbers_of_table_4():
    found = {}
    for each in load_experiment("dsf-table4").published:
        found.setdefault(values_of("dsf-table4", each.run)["dsf_tau"], []).append(each.value)
    assert found == {
        0.1: [27.71, 22.02], 0.9: [89.83, 91.18], 1.0: [90.04, 91.21], 1.1: [89.80, 91.09], 5.0: [38.44, 56.33],
    }  # fmt: skip


def test_the_curbs_of_the_concentration_are_taken_off_one_by_one():
    curbs = {
        run: (values["dsf_shrink"], values["dsf_plain_kappa"])
        for run in load_experiment("dsf-c3").runs
        for values in [values_of("dsf-c3", run)]
    }
    assert curbs == {
        "dsf": (0.95, False), "undivided": (0.95, True), "unscaled": (1.0, False), "neither": (1.0, True),
    }  # fmt: skip


def test_the_longest_training_of_figure_3_is_ten_times_the_baselines():
    epochs = {run: values_of("dsf-fig3", run)["epochs"] for run in load_experiment("dsf-fig3").runs}
    assert (epochs["moco-800"], epochs["moco-8000"], epochs["dsf-250"], epochs["dsf-400"]) == (800, 8000, 250, 400)


def test_one_view_a_side_has_the_temperature_of_theorem_1():
    cosine, dsf = (values_of("dsf-theorem1", run) for run in ("cosine", "dsf"))
    length, p = 0.95, 128
    kappa = length * (p - length**2) / (1 - length**2) / p
    assert cosine["tau"] == pytest.approx(1 / (length * kappa), abs=5e-5) and dsf["views_per_side"] == 1
