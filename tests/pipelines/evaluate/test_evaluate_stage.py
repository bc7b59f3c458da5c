import numpy as np
import pytest
from vs2fi_world import write_column

from viewkit.pipelines.config import config_values
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.stage import EvaluateStage
from viewkit.pipelines.execution import Execution
from viewkit.pipelines.models.encoder import EncoderFacts, save_encoder
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.runner import run_stage
from viewkit.shards.artifact import IDENTITY, finish_artifact
from viewkit.shards.codecs import decode_json, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.files import make_folder
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Row

CPU = Execution(device="cpu")
COLOURS = ((220, 40, 40), (40, 220, 40), (40, 40, 220))
CONFIG = EvaluateConfig(k="3,500", max_iterations=30)


def coloured(path, per_class, seed, classes=(0, 1, 2), labels=True):
    """Noisy images of one colour a class: pixels alone tell them apart."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(per_class):
        for label in classes:
            height, width = rng.integers(34, 50, 2)
            pixels = np.array(COLOURS[label]) + rng.integers(-25, 26, (height, width, 3))
            fields = {"png": encode_png(pixels.clip(0, 255).astype(np.uint8))}
            if labels:
                fields["cls"] = str(label).encode()
            rows.append(Row(f"c{label}-{number}", fields))
    make_folder(path)
    dataset = Dataset(path)
    write_column(dataset, "images", rows, shard_rows=16)
    return dataset


def make_run(dataset, name="plain", seed=0):
    """A finished run whose encoder still has the weights it began with."""
    folder = dataset.path / "runs" / name
    make_folder(folder)
    facts = EncoderFacts(
        arch="resnet10_narrow", side_px=32, start="moco_v3", num_heads=None, seed=seed, mean=(0.5,) * 3, std=(0.25,) * 3
    )
    save_encoder(folder, facts.fresh(), facts)
    config = config_values(PretrainConfig(arch="resnet10_narrow", seed=seed))
    identity = Identity("pretrain", 1, config, {"images": dataset.column("images").digest}, {})
    write_identity(folder / IDENTITY, identity)
    finish_artifact(folder, identity.digest, {}, ())


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    train, test = coloured(folder / "train", 8, seed=0), coloured(folder / "test", 4, seed=1)
    make_run(train)
    return train, test


@pytest.fixture(scope="module")
def result(world):
    train, test = world
    run_stage(EvaluateStage("plain", str(test.path)), CONFIG, train, CPU)
    return decode_json(train.artifact("runs/plain/eval").path("eval.json").read_bytes())


def test_classes_that_differ_in_colour_are_found_by_pixels_and_by_any_encoder(result):
    for kind in ("encoder", "untrained", "pixels"):
        assert [probe["name"] for probe in result["probes"][kind]] == ["knn3", "knn500", "linear"]
        assert [result["probes"][kind][place]["top1"] for place in (0, 2)] == [1.0, 1.0]


def test_an_encoder_that_was_never_trained_equals_its_untrained_baseline(result):
    assert result["probes"]["encoder"] == result["probes"]["untrained"]


def test_the_result_says_what_was_measured_and_how(result):
    assert result["data"] == {
        "num_train": 24, "num_test": 12, "num_classes": 3, "most_frequent_class": pytest.approx(1 / 3),
    }  # fmt: skip
    assert result["probes"]["encoder"][1]["k_used"] == 24
    assert {"images", "kNN", "linear", "pixels", "untrained"} == set(result["protocol"])


def test_the_identity_holds_the_run_and_both_sets_of_images_and_no_path(world, result):
    train, test = world
    identity = train.artifact("runs/plain/eval").identity
    assert identity.inputs == {
        "images": train.column("images").digest,
        "runs/plain": train.artifact("runs/plain").digest,
        "test images": test.column("images").digest,
    }
    assert str(test.path) not in str(identity.content())


def test_an_evaluation_changes_nothing_of_the_run(world, result):
    train, _ = world
    assert all(name.startswith("encoder") for name in train.artifact("runs/plain").files)


def test_a_run_may_be_named_by_its_folder(world, result):
    train, test = world
    stage = EvaluateStage(str(train.path / "runs" / "plain"), str(test.path))
    assert run_stage(stage, CONFIG, train, CPU).written == 0


def test_other_test_images_are_refused_by_name(world, result, tmp_path):
    train, _ = world
    other = coloured(tmp_path / "other", 3, seed=5)
    with pytest.raises(RefusedError, match="test images"):
        run_stage(EvaluateStage("plain", str(other.path)), CONFIG, train, CPU)


def test_baselines_and_the_linear_probe_can_be_left_out(world):
    train, test = world
    config = EvaluateConfig(k="3", baselines=False, linear=False)
    run_stage(EvaluateStage("plain", str(test.path), "quick"), config, train, CPU)
    quick = decode_json(train.artifact("runs/plain/quick").path("eval.json").read_bytes())
    assert list(quick["probes"]) == ["encoder"] and len(quick["probes"]["encoder"]) == 1
    assert set(quick["protocol"]) == {"images", "kNN"}


def fails(world, test, match, folder="bad"):
    train, _ = world
    with pytest.raises(DataError, match=match):
        run_stage(EvaluateStage("plain", str(test.path), folder), CONFIG, train, CPU)


def test_missing_labels_stop_it_and_say_how_to_pack_them(world, tmp_path):
    fails(
        world,
        coloured(tmp_path / "t", 2, seed=2, labels=False),
        r"no label for 6 of its 6 images \(first: c0-0\).*--labels folders",
    )
    assert not (world[0].path / "runs" / "plain" / "bad").exists()


def test_classes_that_only_one_side_has_stop_it(world, tmp_path):
    fails(world, coloured(tmp_path / "t", 2, seed=2, classes=(0, 1)), r"only train has 1 \(first: 2\)", "fewer")


def test_a_label_that_is_no_number_stops_it(world, tmp_path):
    test = Dataset(tmp_path)
    write_column(test, "images", [Row("a", {"png": encode_png(np.zeros((32, 32, 3), np.uint8)), "cls": b"cat"})], 16)
    fails(world, test, "label of 'a' is b'cat'", "cat")


def test_one_class_alone_stops_it(tmp_path):
    train, test = (coloured(tmp_path / str(n), 3, seed=n, classes=(1,)) for n in (0, 1))
    make_run(train)
    with pytest.raises(DataError, match=r"all images of .* are of class 1"):
        run_stage(EvaluateStage("plain", str(test.path)), CONFIG, train, CPU)


def test_the_training_images_are_no_test_images(world):
    fails(world, world[0], "every image would find itself")


def test_a_test_dataset_that_is_not_there_is_said_so(world, tmp_path):
    fails(world, Dataset(tmp_path / "none"), "there is no such dataset")


@pytest.mark.parametrize("run", ["", "..", "a/b", "runs/.."])
def test_a_run_that_is_no_run_is_refused(run):
    with pytest.raises(ConfigError, match="evaluate: run is"):
        EvaluateStage(run, "test")
