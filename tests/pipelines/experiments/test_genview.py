"""GenView's experiments against the paper, whose numbers stand here once more (tables 1 to 10, appendix A)."""

import pytest

from viewkit.cli.chain import chain_of
from viewkit.pipelines.experiments.experiment import experiment_names, load_experiment
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.views.policies import load_policy

NAMES = [name for name in experiment_names() if name.startswith("genview-")]
CONVNEXT = "open_clip:convnext_base_w/laion2b_s13b_b82k_augreg"
ABLATIONS = ("genview-table4", "genview-table6", "genview-table7", "genview-table8", "genview-table10")
FRESH = ("genview-table1-swav", "genview-table8")


def run_of(name, run):
    return resolve(PretrainConfig(**load_experiment(name).run_options(run)))


def jobs_of(name, tmp_path):
    return chain_of(load_experiment(name), "images", tmp_path / "d", tmp_path / "t", "test")


def numbers_of(name):
    return {(each.run, each.folder, each.metric, each.of): each.value for each in load_experiment(name).published}


def test_every_row_of_a_table_that_needs_no_other_data_has_an_experiment():
    assert len(NAMES) == 23
    counts = {table: sum(load_experiment(name).table == f"table {table}" for name in NAMES) for table in range(1, 11)}
    assert counts == {1: 8, 2: 4, 3: 0, 4: 1, 5: 6, 6: 1, 7: 1, 8: 1, 9: 0, 10: 1}, "3: detection; 9: the options"


TABLE_1 = {  # table 9: optimiser, rate of the whole batch, weight decay, batch size, epochs, backbone, projection
    "mocov2": ("moco_v2", "sgd", 0.03, 1e-4, 256, 200, "resnet50", 128),
    "swav": ("swav", "lars", 0.6, 1e-4, 256, 200, "resnet50", 128),
    "simsiam": ("simsiam", "sgd", 0.05, 1e-4, 256, 200, "resnet50", 2048),
    "byol": ("byol", "lars", 4.8, 1e-6, 4096, 200, "resnet50", 256),
    "mocov3-r50": ("moco_v3", "lars", 9.6, 1e-6, 4096, 100, "resnet50", 256),
    "mocov3-r50-300": ("moco_v3", "lars", 4.8, 1e-6, 4096, 300, "resnet50", 256),
    "mocov3-vits": ("moco_v3", "adamw", 2.4e-3, 0.1, 4096, 300, "vit_small_patch16_224", 256),
    "mocov3-vitb": ("moco_v3", "adamw", 2.4e-3, 0.1, 4096, 300, "vit_base_patch16_224", 256),
}
TOP1 = {
    "mocov2": (67.5, 70.0), "swav": (70.5, 71.7), "simsiam": (70.0, 72.2), "byol": (71.8, 73.2),
    "mocov3-r50": (68.9, 72.7), "mocov3-r50-300": (72.8, 74.8), "mocov3-vits": (73.2, 74.5),
    "mocov3-vitb": (76.7, 77.8),
}  # fmt: skip


@pytest.mark.parametrize("row", TABLE_1)
def test_table_1_is_trained_as_table_9_says(row):
    framework, optimiser, rate, decay, batch_size, epochs, arch, dim = TABLE_1[row]
    name = f"genview-table1-{row}"
    for run in ("baseline", "genview"):
        config = run_of(name, run)
        assert (config.framework, config.optimiser, config.arch) == (framework, optimiser, arch)
        assert (config.weight_decay, config.batch_size, config.epochs) == (decay, batch_size, epochs)
        assert config.peak_lr == pytest.approx(rate) and config.own["dim"] == dim
    assert tuple(numbers_of(name).values()) == TOP1[row]


@pytest.mark.parametrize("name", [name for name in NAMES if "table1-" in name])
def test_table_1_is_probed_for_90_epochs_at_0_4_for_1024_images_and_vits_at_12(name):
    (probe,) = load_experiment(name).stages["evaluate"]
    rate = 12 if "vit" in name else 0.4
    assert (probe["probes"], probe["epochs"], probe["batch_size"]) == ("augmented", 90, 1024)
    assert float(probe["rates"]) * 1024 / 256 == pytest.approx(rate)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*ABLATIONS, *FRESH)])
def test_the_method_trains_on_new_rated_pairs_every_epoch_and_the_baseline_on_plain_ones(name):
    found = load_experiment(name)
    (draw,), (quality,), (generate,) = (found.stages[stage] for stage in ("draw", "quality", "generate"))
    baseline, method = run_of(name, "baseline"), run_of(name, "genview")
    assert (baseline.select, baseline.weights, baseline.alpha) == ("random", "none", 0.0)
    assert (method.select, method.weights) == ("stored", "quality")
    assert draw["rounds"] == method.epochs, "no pair comes twice"
    assert (draw["candidates"], draw["policy"]) == ("either", method.policy)
    assert load_policy(method.policy).side_px == method.side_px
    assert (quality["encoder"], quality["side_px"], quality["sample"]) == (CONVNEXT, 224, 10_000)
    assert (generate["generator"], generate["steps"], generate["guidance"]) == ("unclip", 20, 10.0)
    assert generate["share"] == 0.4 and "strategy" not in generate, "adaptive is the default"


@pytest.mark.parametrize("name", NAMES)
def test_every_chain_is_one_of_commands_and_options_that_exist(name, tmp_path):
    jobs = jobs_of(name, tmp_path)
    assert [job.name for job in jobs[:2]] == (["pack", "generate"] if "table10" in name else ["pack", "pack test"])
    assert load_experiment(name).needs.keys() >= {"generate.weights"}
    assert all(len(note) > 20 for note in load_experiment(name).notes)


@pytest.mark.parametrize("name", FRESH)
def test_where_the_trainer_rates_the_component_is_fitted_after_the_pairs_are_drawn(name, tmp_path):
    names = [job.name for job in jobs_of(name, tmp_path)]
    assert (
        names.index("draw")
        < names.index("foreground")
        < names.index(next(each for each in names if "pretrain" in each))
    )
    fit = load_experiment(name).stages["foreground"][0]
    assert (fit["of"], fit["encoder"], fit["side_px"]) == ("views", CONVNEXT, 224)


TABLE_2 = {  # 1 % top-1, top-5, 10 % top-1, top-5
    "mocov3-100": ((50.4, 76.6, 66.8, 88.4), (51.9, 78.5, 68.4, 89.4)),
    "mocov2": ((42.1, 70.9, 60.9, 84.2), (50.6, 78.3, 63.1, 86.0)),
    "byol": ((53.2, 78.8, 68.2, 89.0), (55.6, 81.3, 68.6, 89.5)),
    "mocov3-300": ((56.2, 80.7, 69.4, 89.7), (58.1, 82.5, 70.6, 90.4)),
}


@pytest.mark.parametrize("row", TABLE_2)
def test_table_2_fine_tunes_for_20_epochs_on_1_and_10_percent(row):
    name = f"genview-table2-{row}"
    one, ten = load_experiment(name).stages["evaluate"]
    assert (one["shares"], one["tune_epochs"], one["tune_head_lr"], one["tune_lr"]) == ("0.01", 20, 1.0, 1e-5)
    assert (ten["shares"], ten["tune_epochs"], ten["tune_head_lr"], ten["tune_lr"]) == ("0.1", 20, 0.2, 0.02)
    kinds = [("semi1", "top1"), ("semi1", "top5"), ("semi10", "top1"), ("semi10", "top5")]
    expected = {
        (run, part, part, of): value
        for run, values in zip(("baseline", "genview"), TABLE_2[row], strict=True)
        for (part, of), value in zip(kinds, values, strict=True)
    }
    assert numbers_of(name) == expected


TABLE_5 = {  # epochs, batch size, momentum, keys in the queue, side; MoCo v2 and BYOL
    "cifar10": (500, 512, 0.99, 4096, 32, 93.00, 93.56),
    "cifar100": (500, 512, 0.99, 4096, 32, 67.49, 67.53),
    "tiny": (200, 256, 0.996, 16_384, 64, 56.76, 54.79),
}


@pytest.mark.parametrize("data", TABLE_5)
def test_table_5_is_trained_as_appendix_a_says(data):
    epochs, batch_size, momentum, queue, side_px, *top1 = TABLE_5[data]
    for framework, value in zip(("mocov2", "byol"), top1, strict=True):
        name = f"genview-table5-{framework}-{data}"
        config = run_of(name, "genview")
        assert (config.epochs, config.batch_size, config.side_px) == (epochs, batch_size, side_px)
        assert (config.optimiser, config.weight_decay, config.warmup_epochs) == ("sgd", 5e-4, 10.0)
        assert config.peak_lr == pytest.approx(0.5)
        assert (config.own["momentum"], config.own["dim"], config.arch) == (momentum, 128, "resnet18_cifar")
        if framework == "mocov2":
            assert (config.own["tau"], config.own["queue_length"]) == (0.2, queue)
        (probe,) = load_experiment(name).stages["evaluate"]
        assert (probe["epochs"], float(probe["rates"]) * probe["batch_size"] / 256) == (100, 0.2)
        assert numbers_of(name) == {("genview", "eval", "augmented", "top1"): value}


def shared_of(name):
    """What all runs of an ablation share."""
    config = run_of(name, next(iter(load_experiment(name).runs)))
    return config.arch, config.epochs, config.batch_size, config.optimiser, config.weight_decay, config.peak_lr


@pytest.mark.parametrize("name", ["genview-table6", "genview-table7"])
def test_tables_6_and_7_are_of_imagenet_100_with_50_000_generated_views(name):
    assert shared_of(name) == ("resnet18", 100, 512, "lars", 1e-6, pytest.approx(1.2))
    assert {each["subset"] for each in load_experiment(name).stages["generate"]} == {50_000}
    (probe,) = load_experiment(name).stages["evaluate"]
    assert (probe["epochs"], float(probe["rates"]) * 4) == (50, pytest.approx(0.4))


@pytest.mark.parametrize("name", ["genview-table4", "genview-table8"])
def test_tables_4_and_8_are_50_epochs_of_resnet_50_on_batches_of_512(name):
    assert shared_of(name) == ("resnet50", 50, 512, "lars", 1e-6, pytest.approx(1.2))


def test_table_4_has_0_15_million_generated_views_without_levels_or_weights():
    (generate,) = load_experiment("genview-table4").stages["generate"]
    assert (generate["subset"], generate["strategy"]) == (150_000, "constant")
    baseline, framework = run_of("genview-table4", "baseline"), run_of("genview-table4", "framework")
    assert (baseline.alpha, framework.alpha, framework.weights) == (0.0, 1.0, "none")
    assert list(numbers_of("genview-table4").values()) == [62.39, 84.57, 65.62, 87.25]


def test_table_6_switches_framework_levels_and_weights_one_by_one():
    runs = {name: run_of("genview-table6", name) for name in load_experiment("genview-table6").runs}
    generated = {name: config.select == "stored" and config.pairs != "pairs_plain" for name, config in runs.items()}
    adaptive = {name: config.select == "stored" and config.pairs == "pairs" for name, config in runs.items()}
    weighted = {name: config.weights == "quality" for name, config in runs.items()}
    switches = {name: (generated[name], adaptive[name], weighted[name]) for name in runs}
    assert {switches[run]: value for (run, *_), value in numbers_of("genview-table6").items()} == {
        (False, False, False): 65.52,
        (False, False, True): 66.97,
        (True, False, False): 71.50,
        (True, True, False): 73.96,
        (True, False, True): 74.88,
        (True, True, True): 75.40,
    }
    rated = {table["column"]: table["pairs"] for table in load_experiment("genview-table6").stages["quality"]}
    assert all(rated[config.quality_column] == config.pairs for name, config in runs.items() if weighted[name])


def test_table_7_has_every_strategy():
    found = load_experiment("genview-table7")
    columns = {
        table.get("column", "genview"): (table.get("strategy", "adaptive"), table.get("level"))
        for table in found.stages["generate"]
    }
    strategies = {run: columns[run_of("genview-table7", run).genview] for run in found.runs}
    assert strategies == {
        **{f"cs{level}": ("constant", level) for level in (0, 100, 200, 300, 400)},
        "rs": ("random", None),
        "as": ("adaptive", None),
    }
    top1 = [value for (*_, of), value in numbers_of("genview-table7").items() if of == "top1"]
    assert top1 == [71.80, 72.14, 71.50, 71.76, 72.08, 72.96, 73.96]
    top5 = [value for (*_, of), value in numbers_of("genview-table7").items() if of == "top5"]
    assert top5 == [92.19, 92.34, 91.88, 92.02, 92.36, 92.78, 93.22]


def test_table_8_has_every_probability():
    runs = [run_of("genview-table8", run) for run in load_experiment("genview-table8").runs]
    assert [config.alpha for config in runs] == [0.0, 0.1, 0.3, 0.5, 0.8, 1.0]
    assert [config.rates_fresh for config in runs] == [False] + 5 * [True]
    values = list(numbers_of("genview-table8").values())
    assert values == [62.39, 84.57, 65.86, 87.10, 68.38, 89.02, 69.04, 89.29, 69.47, 89.49, 70.55, 90.34]
