"""The preset of an estimator: chosen for the images and the machine, said, and recorded."""

import pytest
from vs2fi_world import make_images

from viewkit.pipelines.estimator import stage as estimator_stage
from viewkit.pipelines.estimator.choose import Situation, choose_preset, situation_of
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.stage import EstimatorStage
from viewkit.shards.errors import ConfigError

CONFIG = EstimatorConfig()


@pytest.mark.parametrize(
    ("images", "side", "kind", "cores", "preset"),
    [
        (1_000, 427, "cpu", 2, "pico-32"),  # few images are worth no larger network
        (50_000, 32, "cpu", 64, "pico-32"),  # small ones have nothing to show it
        (10_000, 427, "cpu", 16, "tiny-64"),
        (10_000, 427, "cpu", 2, "pico-32"),  # ten hours
        (10_000, 427, "cuda", 2, "tiny-64"),
        (118_000, 427, "cuda", 8, "small-96"),
        (118_000, 427, "cpu", 2, "pico-32"),
        (1_281_167, 400, "cuda", 8, "small-96"),  # nine days at 224 px on one GPU
        (500_000, 400, "cuda", 8, "vit-s16-224"),
    ],
)
def test_the_largest_preset_is_chosen_that_images_and_machine_allow(images, side, kind, cores, preset):
    assert choose_preset(CONFIG, Situation(images, side, kind, cores))[0] == preset


def test_the_reason_and_the_time_are_one_line():
    line = choose_preset(CONFIG, Situation(1_000, 427, "cpu", 2))[1]
    assert line.startswith(
        "preset pico-32 for 1000 images of 427 px on 2 CPU cores; tiny-64 is for 5000 images or more"
    )
    assert "roughly 1 min" in line and "\n" not in line
    assert "would take roughly" in choose_preset(CONFIG, Situation(10_000, 427, "cpu", 2))[1]


def test_a_number_of_steps_or_epochs_that_was_given_counts():
    short = EstimatorConfig(epochs=10)
    assert choose_preset(short, Situation(10_000, 427, "cpu", 2))[0] == "tiny-64"
    assert "roughly" not in choose_preset(EstimatorConfig(steps=5), Situation(10_000, 427, "cpu", 2))[1]


def test_images_are_looked_at_and_a_given_preset_stays(tmp_path):
    dataset = make_images(tmp_path, count=20)
    found = situation_of(dataset, "cpu")
    assert (found.images, found.kind) == (20, "cpu") and found.side_px > 0
    stage = EstimatorStage()
    assert stage.for_images(CONFIG, dataset, "cpu").preset == "pico-32"
    assert stage.advice(CONFIG, dataset, "cpu")[0].startswith("preset pico-32 for 20 images")
    given = EstimatorConfig(preset="small-96")
    assert stage.for_images(given, dataset, "cpu") == given and stage.advice(given, dataset, "cpu") == []
    assert stage.settings(stage.for_images(CONFIG, dataset, "cpu"))["preset"] == "pico-32"


def test_the_preset_of_an_estimator_that_was_begun_stays_on_another_machine(tmp_path, monkeypatch):
    from viewkit.pipelines.engine.folder import claim, identity_of

    dataset, stage = make_images(tmp_path, count=20), EstimatorStage()
    config = EstimatorConfig(preset="tiny-64")
    (tmp_path / "estimator").mkdir()
    identity = identity_of(stage, config, stage.inputs(config, dataset), {})
    claim(stage, dataset, tmp_path / "estimator" / "artifact.json", identity)
    monkeypatch.setattr(estimator_stage, "choose_preset", lambda config, now: ("small-96", ""))
    assert stage.for_images(CONFIG, dataset, "cpu").preset == "tiny-64"


def test_what_no_preset_allows_is_refused_at_once():
    with pytest.raises(ConfigError, match="epochs is 0"):
        EstimatorConfig(epochs=0)
    with pytest.raises(ConfigError, match="lr is -1"):
        EstimatorConfig(lr=-1.0)
