"""Hard View Selection's experiments say what the paper says: its numbers are stated here a second time."""

import pytest

from viewkit.cli.chain import chain_of
from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.experiments.experiment import experiment_names, load_experiment
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.pairs import views_policy
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import IouCeiling

NAMES = [name for name in experiment_names() if name.startswith("hvs-")]
RUNS = [(name, run) for name in NAMES for run in load_experiment(name).runs]


def settings_of(name, run):
    return resolve(make_config(PretrainConfig, load_experiment(name).run_options(run), name))


def values_of(name, run="hvs"):
    return settings_of(name, run).values()


def published(name):
    return {(each.run, each.metric): each.value for each in load_experiment(name).published}


TABLE_2 = {  # baseline linear and fine-tuned, HVS linear and fine-tuned, learning rate and epochs of the fine-tuning
    "simsiam-cifar10": (82.60, 95.50, 84.40, 96.10, 7.5e-6, 300),
    "simsiam-cifar100": (54.20, 77.20, 57.10, 78.20, 5e-6, 300),
    "simsiam-flowers102": (34.27, 56.40, 38.37, 58.90, 5e-4, 300),
    "simsiam-inat21": (32.50, 60.30, 33.90, 60.90, 7e-5, 100),
    "simsiam-food101": (65.70, 83.90, 67.10, 84.70, 5e-6, 100),
    "dino-cifar10": (94.53, 98.53, 95.13, 98.65, 7.5e-6, 300),
    "dino-cifar100": (80.63, 87.90, 81.27, 88.23, 7.5e-6, 300),
    "dino-flowers102": (91.10, 93.20, 92.07, 93.60, 5e-5, 300),
    "dino-inat21": (46.93, 53.97, 49.03, 54.16, 5e-5, 100),
    "dino-food101": (73.30, 87.50, 74.13, 87.91, 5e-5, 100),
}


def test_every_results_table_and_figure_of_trainings_has_an_experiment():
    tables = {load_experiment(name).table for name in NAMES}
    assert tables == {"table 1", "table 2", "table 4", "figure 4", "figure 5", "figure 8", "figure 9", "appendix F.2"}
    assert len(NAMES) >= 12 and {load_experiment(name).paper for name in NAMES} == {"HVS"}


@pytest.mark.parametrize("name", NAMES)
def test_its_chain_can_be_planned_and_all_its_views_fit_their_frameworks(name, tmp_path):
    experiment = load_experiment(name)
    chain_of(experiment, "images", tmp_path / "d", tmp_path / "t", "test")
    for run in experiment.runs:
        views_policy(settings_of(name, run))


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_every_run_has_the_papers_warm_up_momentum_and_views(name, run):
    values = values_of(name, run)
    assert not values["fit_warmup"] and not (values.get("momentum") and values["fit_momentum"])
    assert values["crop"] == "torchvision"
    if values["select"] == "hard":
        assert values["views"] == (8 if run == "views-8" else 4)


@pytest.mark.parametrize(
    ("name", "epochs", "batch_size", "rate"),
    [
        ("hvs-table1-simsiam", 100, 512, 0.1),
        ("hvs-table1-simsiam-300", 300, 1024, 0.2),
        ("hvs-table1-simclr", 100, 4096, 4.8),
        ("hvs-table1-simclr-200", 200, 4096, 4.8),
        ("hvs-table1-dino-vits", 100, 512, 1e-3),
        ("hvs-table1-dino-vits-300", 300, 1024, 2e-3),
        ("hvs-table1-dino-r50", 100, 512, 1e-3),
        ("hvs-table1-dino-r50-300", 300, 1024, 2e-3),
    ],
)
def test_epochs_batch_and_learning_rate_of_table_1(name, epochs, batch_size, rate):
    for run in ("baseline", "hvs"):
        settings = settings_of(name, run)
        assert (settings.epochs, settings.batch_size, settings.side_px) == (epochs, batch_size, 224)
        assert settings.peak_lr == pytest.approx(rate)


@pytest.mark.parametrize("name", [name for name in NAMES if "table1" in name])
def test_method_and_baseline_differ_in_the_selection_alone(name):
    baseline, hvs = values_of(name, "baseline"), values_of(name)
    different = {key for key in hvs if hvs[key] != baseline.get(key)}
    assert different <= {"select", "views", "small_views", "comparisons"} and baseline["select"] == "random"


@pytest.mark.parametrize("name", [name for name in NAMES if "dino" in name])
def test_dino_is_table_7(name):
    for run in load_experiment(name).runs:
        values = values_of(name, run)
        vit = values["arch"] == "vit_small_patch16_224"
        assert vit or values["arch"] == "resnet50"
        assert (values["optimiser"], values["weight_decay"], values["weight_decay_end"]) == ("adamw", 0.04, 0.4)
        assert (values["lr"], values["lr_end"], values["warmup_epochs"], values["clip"]) == (5e-4, 1e-6, 10.0, 3.0)
        assert (values["momentum"], values["teacher_tau"], values["teacher_tau_start"]) == (0.996, 0.04, 0.04)
        assert (values["teacher_warmup_epochs"], values["last_freeze_epochs"], values["dim"]) == (0.0, 1.0, 65_536)
        assert values["norm_last"] is True and values["drop_path"] == (0.1 if vit else 0.0)
        specs = load_policy(values["policy"]).views
        areas = ((0.4, 1.0), (0.05, 0.4)) if vit else ((0.14, 1.0), (0.05, 0.14))
        assert (specs[0].area, specs[2].area, specs[2].side_px, len(specs)) == (*areas, 96, 2 + 8)
        if values["select"] == "hard":
            assert values["comparisons"] == 128


def test_simsiam_is_table_8_and_simclr_table_9():
    values = values_of("hvs-table1-simsiam")
    assert (values["arch"], values["optimiser"], values["lr"], values["weight_decay"]) == (
        "resnet50",
        "sgd",
        0.05,
        1e-4,
    )
    assert (values["dim"], values["hidden"], values["warmup_epochs"]) == (2048, 512, 0.0)
    spec = load_policy(values["policy"]).views[0]
    assert (spec.area, spec.p_blur) == ((0.2, 1.0), 0.5)
    values = values_of("hvs-table1-simclr")
    assert (values["arch"], values["optimiser"], values["lr"], values["weight_decay"]) == (
        "resnet50",
        "lars",
        0.3,
        1e-4,
    )
    assert (values["hidden"], values["dim"], values["tau"], values["warmup_epochs"]) == (2048, 128, 0.1, 10.0)


@pytest.mark.parametrize(
    ("name", "linear", "knn"),
    [
        ("hvs-table1-simsiam-300", (70.35, 70.90), (61.40, 62.97)),
        ("hvs-table1-simclr-200", (65.50, 67.20), (55.65, 57.31)),
        ("hvs-table1-dino-vits-300", (75.48, 76.56), (72.62, 73.64)),
        ("hvs-table1-dino-r50-300", (75.25, 75.65), (69.53, 70.05)),
    ],
)
def test_numbers_of_the_long_trainings_of_table_1(name, linear, knn):
    assert published(name) == {
        ("baseline", "augmented"): linear[0], ("hvs", "augmented"): linear[1],
        ("baseline", "knn20"): knn[0], ("hvs", "knn20"): knn[1],
    }  # fmt: skip


def test_table_4_has_the_papers_bounds_and_differences():
    bounds = {
        "iou-30-35": (0.3, 0.35, False, -0.80, -1.47), "iou-30-35-alternating": (0.3, 0.35, True, 0.10, -0.45),
        "iou-40-60": (0.4, 0.6, False, 0.55, -0.40), "iou-40-60-alternating": (0.4, 0.6, True, 0.25, -0.20),
        "iou-10-80": (0.1, 0.8, False, -33.95, -1.50), "iou-100-10": (1.0, 0.1, False, 0.07, None),
    }  # fmt: skip
    for name, base, column in (("hvs-table4-simsiam", 68.20, 3), ("hvs-table4-dino", 73.50, 4)):
        expected = {run: row for run, row in bounds.items() if row[column] is not None}
        assert set(load_experiment(name).runs) == {"baseline", *expected}
        assert settings_of(name, "baseline").iou_ceiling() is None
        for run, row in expected.items():
            assert views_policy(settings_of(name, run)).iou == IouCeiling(start=row[0], end=row[1], alternating=row[2])
            assert published(name)[run, "augmented"] == pytest.approx(base + row[column])


@pytest.mark.parametrize("name", list(TABLE_2))
def test_transfer_is_table_2_with_fine_tuning_by_tables_10_and_11(name):
    experiment, (method, data) = load_experiment(f"hvs-table2-{name}"), name.split("-")
    *numbers, rate, epochs = TABLE_2[name]
    (options,) = experiment.stages["evaluate"]
    assert (options["tune_optimiser"], options["tune_lr"], options["tune_weight_decay"]) == ("adamw", rate, 0.05)
    assert (options["tune_epochs"], options["tune_batch_size"], options["folder"]) == (epochs, 512, data)
    found = [(each.run, each.metric, each.folder) for each in experiment.published]
    assert found == [(run, probe, data) for run in ("baseline", "hvs") for probe in ("augmented", "finetune")]
    assert [each.value for each in experiment.published] == numbers and "evaluate.train" in experiment.needs
    table_1 = load_experiment({"simsiam": "hvs-table1-simsiam", "dino": "hvs-table1-dino-vits"}[method])
    assert experiment.runs == table_1.runs and experiment.stages["pretrain"] == table_1.stages["pretrain"]


def test_the_log_of_figure_9_holds_300_000_pairs():
    values = values_of("hvs-fig9", "seed-0")
    steps = values["epochs"] * (1_281_167 // values["batch_size"])
    rows = -(-steps // values["log_views"]) * values["batch_size"]
    assert 6 * rows == pytest.approx(300_000, rel=0.05)
