"""JointCrop's experiments say what the paper says; its tables are written down here a second time."""

import pytest

from viewkit.pipelines.experiments.experiment import experiment_names, load_experiment
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.pairs import views_policy
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import JointSpec

NAMES = [name for name in experiment_names() if name.startswith("jointcrop-")]
METHODS = {"simclr": "simclr", "byol": "byol", "mocov2": "moco_v2", "simsiam": "simsiam"}
TABLE_1 = {
    "in1k-simclr": (512, 100, 60.7, 62.16, 61.40), "in1k-simsiam": (256, 100, 68.1, 68.51, 68.31),
    "in1k-mocov1": (256, 200, 60.6, 63.29, 62.87), "in1k-mocov2": (256, 200, 67.5, 67.70, 67.87),
    "in1k-mocov3-100": (4096, 100, 68.9, 69.47, None), "in1k-mocov3-300": (4096, 300, 72.8, 73.23, None),
}  # fmt: skip
TABLE_2 = {
    "stl10-simclr": (89.40, 90.20), "stl10-byol": (91.71, 92.28), "stl10-mocov2": (88.11, 89.78),
    "stl10-simsiam": (88.74, 89.08), "tiny-simclr": (45.25, 47.53), "tiny-byol": (48.91, 49.91),
    "tiny-mocov2": (46.07, 48.45), "tiny-simsiam": (44.17, 45.73),
}  # fmt: skip
TABLE_5 = {  # beta 2, 1, 0, -1, -2
    "tiny-simclr": (46.69, 47.77, 47.53, 47.29, 47.95), "tiny-byol": (50.19, 49.98, 49.91, 49.54, 51.02),
    "tiny-mocov2": (46.65, 47.81, 48.45, 48.66, 48.78), "tiny-simsiam": (45.45, 45.10, 45.73, 45.91, 45.62),
}  # fmt: skip
OTHERS = {
    "coco-mocov1": {"baseline": 59.62, "jointcrop": 61.92},
    "coco-mocov2": {"baseline": 56.12, "jointcrop": 57.92},
    "in100-jointcolor": {"baseline": 63.18, "brightness": 63.80, "contrast": 63.68},
    "in1k-dino": {"baseline": 66.36, "large": 66.55, "small": 66.58},
    "in1k-mocov1-100": {
        "baseline": 57.25, "contrastive": 58.34, "jointcrop": 60.87, "jointblur": 60.58, "either": 61.24,
        "centre": 61.33,
    },
}  # fmt: skip
AREA, SIGMA = JointSpec(parameter="area", beta=0.0), JointSpec(parameter="sigma", beta=0.0)


def run_of(name, run):
    config = resolve(PretrainConfig(**load_experiment(f"jointcrop-{name}").run_options(run)))
    return config, views_policy(config)


def numbers(name):
    return {each.run: each.value for each in load_experiment(f"jointcrop-{name}").published}


def test_every_table_that_images_alone_allow_has_its_files():
    assert {name.removeprefix("jointcrop-") for name in NAMES} == {*TABLE_1, *TABLE_2, *OTHERS, "difficulty"}


@pytest.mark.parametrize("name", TABLE_1)
def test_table_1_in_batch_epochs_and_numbers(name):
    batch, epochs, *values = TABLE_1[name]
    for run, joint in {"baseline": (), "jointcrop": (AREA,), "jointblur": (SIGMA,)}.items():
        if run not in load_experiment(f"jointcrop-{name}").runs:
            assert values[2] is None
            continue
        config, policy = run_of(name, run)
        assert (config.batch_size, config.epochs, config.arch, config.side_px) == (batch, epochs, "resnet50", 224)
        assert policy.joint == joint and policy.crop == ("exact" if run == "jointcrop" else "torchvision")
        assert policy.views[0].area == ((0.08, 1.0) if name == "in1k-simclr" else (0.2, 1.0))
        if joint == (SIGMA,):
            assert all(view.sigma == (0.1, 2.0) and view.p_blur == 0.5 for view in policy.views)
    expected = dict(zip(("baseline", "jointcrop", "jointblur"), values, strict=True))
    assert numbers(name) == {run: value for run, value in expected.items() if value is not None}


def test_learning_rates_of_the_original_papers():
    rates = {
        "in1k-simclr": 0.6, "in1k-simsiam": 0.05, "in1k-mocov1": 0.03, "in1k-mocov2": 0.03, "in1k-mocov3-100": 9.6,
        "in1k-mocov3-300": 4.8,
    }  # fmt: skip
    for name, rate in rates.items():
        assert run_of(name, "baseline")[0].peak_lr == pytest.approx(rate)
    assert run_of("in1k-mocov1", "baseline")[0].lr_schedule == "steps"
    assert [run_of(f"in1k-mocov3-{n}", "baseline")[0].own["momentum"] for n in (100, 300)] == [0.99, 0.99]


@pytest.mark.parametrize("name", TABLE_2)
def test_table_2_on_small_images(name):
    data, method = name.split("-")
    for run in ("baseline", "jointcrop"):
        config, policy = run_of(name, run)
        assert (config.framework, config.arch) == (METHODS[method], "resnet18_cifar")
        assert (config.epochs, config.batch_size, config.peak_lr) == (500, 512, 0.5)
        assert policy.joint == ((AREA,) if run == "jointcrop" else ())
        assert all(view.p_blur == 0 for view in policy.views)
        assert config.side_px == load_policy(data).side_px == {"stl10": 96, "tiny": 64}[data]
    (evaluate,) = load_experiment(f"jointcrop-{name}").stages["evaluate"]
    assert evaluate["rates"] == "10"
    assert tuple(numbers(name)[run] for run in ("baseline", "jointcrop")) == TABLE_2[name]


@pytest.mark.parametrize("name", TABLE_5)
def test_table_5_in_beta(name):
    runs = dict(zip(("beta2", "beta1", "jointcrop", "beta_1", "beta_2"), (2.0, 1.0, 0.0, -1.0, -2.0), strict=True))
    for run, beta in runs.items():
        assert run_of(name, run)[1].joint == (JointSpec(parameter="area", beta=beta),)
    assert tuple(numbers(name)[run] for run in runs) == TABLE_5[name]


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_tables_numbers(name):
    assert numbers(name) == OTHERS[name]


def test_table_6_is_pretrained_without_labels_and_measured_elsewhere():
    for name in ("coco-mocov1", "coco-mocov2"):
        experiment = load_experiment(f"jointcrop-{name}")
        assert "evaluate.train" in experiment.needs and experiment.stages["pack"] == ({},)


def test_table_7_has_joint_factors():
    for run in ("brightness", "contrast"):
        _, policy = run_of("in100-jointcolor", run)
        assert policy.joint == (JointSpec(parameter=run, beta=0.0),)
        assert all(view.brightness == view.contrast == 0.4 for view in policy.views)


def test_table_10_is_multi_crop_of_160_and_96_px():
    for run, specs in {"large": (0, 1), "small": (2, 3, 4, 5)}.items():
        _, policy = run_of("in1k-dino", run)
        assert [policy.side_of(spec) for spec in range(6)] == [160] * 2 + [96] * 4 and policy.num_views == 6
        assert policy.views[0].area == (0.4, 1.0) and policy.views[2].area == (0.05, 0.4)
        assert policy.joint == (JointSpec(parameter="area", beta=0.0, specs=specs),)
    assert run_of("in1k-dino", "baseline")[1].joint == ()


def test_appendix_f_uses_either_and_table_11_suppresses_the_centre():
    _, either = run_of("in1k-mocov1-100", "either")
    assert [(each.parameter, each.beta, each.probability) for each in either.joint] == [
        ("area", 0.0, 0.5), ("sigma", 0.0, 0.5),
    ]  # fmt: skip
    assert either.joint_mix == "one"
    _, centre = run_of("in1k-mocov1-100", "centre")
    assert centre.joint == (AREA,) and all(view.centre == 0.6 for view in centre.views)


def test_the_difficulty_of_every_beta_is_measured():
    tables = load_experiment("jointcrop-difficulty").stages["difficulty"]
    assert [table.get("joint_area") for table in tables] == [None, 2.0, 1.0, 0.0, -1.0, -2.0]
    assert {table["encoder"] for table in tables} == {"runs/simsiam"} and len({each["folder"] for each in tables}) == 6
