from dataclasses import replace

import numpy as np
import pytest
from small_datasets import COLOURS, coloured, contents
from vs2fi_world import write_column

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.corrupted import CorruptedTest, level_set
from viewkit.pipelines.evaluate.corruptions.protocol import PROTOCOLS
from viewkit.pipelines.evaluate.network_probes import NetworkProbes
from viewkit.pipelines.evaluate.stage import EvaluateStage, read_data, sentence
from viewkit.pipelines.models.predictions import PREDICTIONS, load_predictions
from viewkit.pipelines.models.saved import EncoderFacts, save_encoder
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.shards.artifact import IDENTITY, finish_artifact
from viewkit.shards.codecs import decode_json, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.files import make_folder
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Row

CPU = Execution(device="cpu")
CONFIG = EvaluateConfig(k="3,500", max_iterations=30)


EVERYTHING = EvaluateConfig(
    probes="knn,linear,sgd,augmented,moco_v3,semi,finetune", k="3", rates="0.1,10", epochs=2, batch_size=8,
    shares="0.25", tune_epochs=1, tune_batch_size=8, seeds=2,
)  # fmt: skip


def make_run(dataset, name="plain", seed=0):
    """A finished run whose encoder still has the weights it began with."""
    folder = dataset.path / "runs" / name
    make_folder(folder)
    facts = EncoderFacts(
        arch="resnet10_narrow", side_px=32, init="moco_v3", num_heads=None, seed=seed, mean=(0.5,) * 3, std=(0.25,) * 3
    )
    save_encoder(folder, facts.fresh(), facts)
    config = resolve(PretrainConfig(arch="resnet10_narrow", seed=seed)).values()
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
    config = EvaluateConfig(k="3", baselines=False, probes="knn")
    run_stage(EvaluateStage("plain", str(test.path), "quick"), config, train, CPU)
    quick = decode_json(train.artifact("runs/plain/quick").path("eval.json").read_bytes())
    assert list(quick["probes"]) == ["encoder"] and len(quick["probes"]["encoder"]) == 1
    assert set(quick["protocol"]) == {"images", "kNN"}


def test_another_encoder_is_measured_beside_the_runs_by_the_probes_of_features(world):
    train, test = world
    config = EvaluateConfig(k="3", baselines=False, probes="knn,semi", shares="0.25", encoder="timm:test_vit/random")
    config = replace(config, tune_epochs=1)
    stage = EvaluateStage("plain", str(test.path), "beside")
    run_stage(stage, config, train, CPU)
    beside = decode_json(train.artifact("runs/plain/beside").path("eval.json").read_bytes())
    names = {whose: [probe["name"] for probe in probes] for whose, probes in beside["probes"].items()}
    assert names == {"encoder": ["knn3", "semi25"], "timm:test_vit/random": ["knn3"]}
    with pytest.raises(RefusedError, match="encoder"):
        run_stage(stage, replace(config, encoder=None), train, CPU)


def test_the_run_itself_named_as_another_encoder_gives_the_same_numbers(world):
    train, test = world
    config = EvaluateConfig(k="3", baselines=False, probes="knn,linear", encoder="runs/plain")
    run_stage(EvaluateStage("plain", str(test.path), "itself"), config, train, CPU)
    probes = decode_json(train.artifact("runs/plain/itself").path("eval.json").read_bytes())["probes"]
    assert probes["encoder"] == probes["runs/plain"]


def test_files_of_an_encoder_without_an_encoder_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no encoder; add --encoder"):
        EvaluateStage("plain", "test", encoder_weights=tmp_path / "w.safetensors").check(CONFIG)


@pytest.fixture(scope="module")
def everything(world):
    train, test = world
    summary = run_stage(EvaluateStage("plain", str(test.path), "everything"), EVERYTHING, train, CPU)
    return decode_json(train.artifact("runs/plain/everything").path("eval.json").read_bytes()), summary


def test_every_probe_gives_every_accuracy_in_the_order_asked_for(everything):
    result, summary = everything
    names = ["knn3", "linear", "sgd", "augmented", "moco_v3", "semi25", "finetune"]
    assert [probe["name"] for probe in result["probes"]["encoder"]] == names
    assert [probe["name"] for probe in result["probes"]["untrained"]] == names
    assert [probe["name"] for probe in result["probes"]["pixels"]] == names[:3]
    for probe in result["probes"]["encoder"]:
        assert 0 <= probe["top1"] <= 1 and 0 <= probe["mean_per_class"] <= 1 and probe["top5"] is None
        assert summary.numbers[f"encoder {probe['name']}"] == probe["top1"]
        assert (probe.get("seeds") == 2) == ("top1_std" in probe) == (probe["name"] not in ("knn3", "linear"))


def test_the_answers_to_every_image_are_kept_and_give_the_accuracies(world, everything):
    train, test = world
    answers = load_predictions(train.artifact("runs/plain/everything").path(PREDICTIONS))
    keys = sorted(test.column("images").keys())
    assert answers.labels.tolist() == [int(key[1]) for key in keys] and answers.keys == digest(keys)
    for name, probes in everything[0]["probes"].items():
        for probe in probes:
            right = answers.of[f"{name}/{probe['name']}"] == answers.labels
            assert len(right) == probe.get("seeds", 1) and right.mean() == pytest.approx(probe["top1"])
            assert "predicted" not in probe


def test_probes_of_the_network_say_what_they_used(everything):
    probes = {probe["name"]: probe for probe in everything[0]["probes"]["encoder"]}
    assert all(set(probes[name]["rates"]) <= {0.1, 10} for name in ("sgd", "augmented"))
    assert probes["moco_v3"]["rates"] == [0.1, 0.1] and probes["moco_v3"]["split_accuracies"] == [None, None]
    assert (probes["semi25"]["num_train"], probes["finetune"]["num_train"]) == (6, 24)


def test_an_encoder_that_was_never_trained_equals_its_baseline_in_the_probes_of_the_network_too(everything):
    assert everything[0]["probes"]["encoder"] == everything[0]["probes"]["untrained"]


def test_the_protocol_says_how_every_probe_was_done(everything):
    protocol = everything[0]["protocol"]
    assert {"images", "kNN", "linear", "sgd", "augmented", "moco_v3", "semi", "finetune", "seeds"} < set(protocol)
    assert "one classifier a learning rate (0.1, 10 at 256 images a batch" in protocol["augmented"]
    assert "sgd, learning rate 0.002 (classifier 0.5" in protocol["semi"]


def test_test_labels_take_no_part_in_any_choice(world, everything, tmp_path):
    train, _ = world
    wrong = coloured(tmp_path / "test", 4, seed=1, shift=1)
    config = replace(EVERYTHING, probes="linear,sgd,augmented", baselines=False)
    run_stage(EvaluateStage("plain", str(wrong.path), "wrong"), config, train, CPU)
    other = decode_json(train.artifact("runs/plain/wrong").path("eval.json").read_bytes())["probes"]["encoder"]
    chosen = ("strength", "split_accuracy", "rates", "split_accuracies")
    ours = {probe["name"]: probe for probe in everything[0]["probes"]["encoder"]}
    for theirs in other:
        assert {key: ours[theirs["name"]].get(key) for key in chosen} == {key: theirs.get(key) for key in chosen}
    assert (ours["linear"]["top1"], other[0]["top1"]) == (1, 0)


def test_an_interrupted_evaluation_goes_on_after_the_probes_that_were_done(world, everything, monkeypatch):
    train, test = world
    stage, measure, asked = EvaluateStage("plain", str(test.path), "again"), NetworkProbes.measure, []
    config = replace(EVERYTHING, probes="semi,finetune", baselines=False)

    def interrupted(self, probe):
        asked.append(probe)
        if asked == ["semi", "finetune"]:
            raise KeyboardInterrupt
        return measure(self, probe)

    monkeypatch.setattr(NetworkProbes, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_stage(stage, config, train, CPU)
    parts = train.path / "runs" / "plain" / "again" / "parts"
    kept = contents(parts)
    with pytest.raises(RefusedError, match=r"was written with other settings: .*probes"):
        run_stage(stage, replace(config, probes="knn"), train, CPU)
    assert kept and contents(parts) == kept
    run_stage(stage, config, train, CPU)
    assert asked == ["semi", "finetune", "finetune"]
    again = train.artifact("runs/plain/again")
    assert again.files == ["eval.json", "predictions.safetensors"] and not (again.folder / "parts").exists()
    assert decode_json(again.path("eval.json").read_bytes())["probes"]["encoder"] == [
        probe for probe in everything[0]["probes"]["encoder"] if probe["name"] in ("semi25", "finetune")
    ]


def test_a_dry_run_counts_what_the_probes_will_look_at(world):
    train, test = world
    stage = EvaluateStage("plain", str(test.path), "planned")
    plan = plan_stage(stage, replace(EVERYTHING, probes="knn", baselines=False), train, CPU)
    assert (plan["train_images"], plan["test_images"], plan["images_embedded"]) == (24, 12, 36)
    assert plan["estimated_s"] > 0 and not (train.path / "runs/plain/planned/eval.json").exists()
    everything = plan_stage(stage, EVERYTHING, train, CPU)["images_embedded"]
    crops, semi, finetune = 2 * 2 * 2 * 24, 2 * (3 * 6 + 12), 2 * (3 * 24 + 12)
    assert everything == 2 * (36 + crops + semi + finetune)


@pytest.mark.gpu
def test_every_probe_runs_on_an_accelerator_and_the_plain_ones_agree_with_the_cpu(world, everything):
    train, test = world
    summary = run_stage(
        EvaluateStage("plain", str(test.path), "accelerator"), EVERYTHING, train, Execution(device="cuda")
    )
    assert set(summary.numbers) == set(everything[1].numbers)
    for name in ("encoder knn3", "encoder linear"):
        assert summary.numbers[name] == everything[1].numbers[name]


def test_one_image_a_class_leaves_nothing_to_choose_a_learning_rate_on(tmp_path):
    train, test = coloured(tmp_path / "train", 1, seed=0), coloured(tmp_path / "test", 2, seed=1)
    make_run(train)
    with pytest.raises(DataError, match=r"no class of .* has two images.*the learning rate of 'sgd'.*--rates 0.1"):
        run_stage(EvaluateStage("plain", str(test.path)), EVERYTHING, train, CPU)
    single = EvaluateConfig(probes="sgd", rates="0.1", epochs=2, baselines=False)
    assert run_stage(EvaluateStage("plain", str(test.path)), single, train, CPU).numbers["encoder sgd"] >= 0


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


def test_a_result_is_said_in_percent_with_its_spread():
    result = {"name": "sgd", "top1": 0.5, "top1_std": 0.01, "top5": 0.9, "top5_std": 0.002, "mean_per_class": 0.4}
    assert sentence(result) == "sgd: top-1 50.0 ± 1.0, top-5 90.0 ± 0.2, mean per class 40.0 %"


def test_a_run_without_an_encoder_is_named(tmp_path):
    train, test = coloured(tmp_path / "train", 2, seed=0), coloured(tmp_path / "test", 2, seed=1)
    folder = train.path / "runs" / "empty"
    make_folder(folder)
    identity = Identity("pretrain", 1, {}, {"images": train.column("images").digest}, {})
    write_identity(folder / IDENTITY, identity)
    finish_artifact(folder, identity.digest, {}, ())
    with pytest.raises(DataError, match=r"holds no file 'encoder.json'; rerun 'viewkit pretrain'"):
        run_stage(EvaluateStage("empty", str(test.path)), CONFIG, train, CPU)


def test_probes_can_be_trained_on_another_labelled_set_than_the_runs(tmp_path):
    train = coloured(tmp_path / "unlabelled", 8, seed=0, labels=False)
    make_run(train)
    learns, test = coloured(tmp_path / "flowers", 6, seed=3), coloured(tmp_path / "flowers_test", 4, seed=4)
    stage = EvaluateStage("plain", str(test.path), train=str(learns.path))
    config = EvaluateConfig(probes="knn,linear,finetune", k="3", tune_epochs=1, tune_batch_size=8, baselines=False)
    run_stage(stage, config, train, CPU)
    found = train.artifact("runs/plain/eval")
    result = decode_json(found.path("eval.json").read_bytes())
    assert result["data"]["num_train"] == 18 and result["probes"]["encoder"][-1]["name"] == "finetune"
    assert found.identity.inputs == {
        "runs/plain": train.artifact("runs/plain").digest,
        "train images": learns.column("images").digest,
        "test images": test.column("images").digest,
    }
    with pytest.raises(DataError, match="has no label for 24 of its 24 images"):
        run_stage(EvaluateStage("plain", str(test.path), "own"), config, train, CPU)
    with pytest.raises(DataError, match="holds the very images of"):
        run_stage(EvaluateStage("plain", str(learns.path), "same", train=str(learns.path)), config, train, CPU)


def test_corrupted_test_images_are_measured_by_the_probes_fitted_on_clean_ones(world, tmp_path):
    train, test = world
    config = EvaluateConfig(k="3", probes="knn,linear", max_iterations=30, corruptions="dsf", baselines=False)
    numbers = run_stage(EvaluateStage("plain", str(test.path), "dsf"), config, train, CPU).numbers
    found = decode_json(train.artifact("runs/plain/dsf").path("eval.json").read_bytes())["corruptions"]
    assert found["protocol"] == "dsf" and found["set"] == "cifar" and set(found["probes"]) == {"encoder"}
    linear = found["probes"]["encoder"]["linear"]
    assert len(linear["errors"]) == 18 and linear["mce_alexnet"] is None and linear["errors"]["pixelate"] == [0.0]
    assert numbers["encoder linear mce_unnormalised"] == linear["mce_unnormalised"]
    folder = tmp_path / "arrays"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile([0, 1, 2], 5))
    shades = np.tile(np.array(COLOURS, dtype=np.uint8)[:, None, None, :], (5, 32, 32, 1))
    for kind in PROTOCOLS["dsf"].kinds:
        np.save(folder / f"{kind}.npy", shades if kind != "snow" else shades[::-1])
    stage = EvaluateStage("plain", str(test.path), "arrays", corrupted=folder)
    run_stage(stage, config, train, CPU)
    read = decode_json(train.artifact("runs/plain/arrays").path("eval.json").read_bytes())["corruptions"]["probes"]
    assert read["encoder"]["knn3"]["errors"]["frost"] == [0.0]
    assert read["encoder"]["knn3"]["errors"]["snow"] == [pytest.approx(2 / 3)]
    assert "corrupted images" in train.artifact("runs/plain/arrays").identity.inputs
    data = read_data(train, test, config)
    for side_px in (96, 224):  # whose views have no parameters, or ImageNet's
        images = stage._corrupted(config, data, side_px)
        assert images.levels is None and not images.of_imagenet
    own = CorruptedTest(data.test, data.train.classes, "imagenet", 0)
    assert not own.of_imagenet and replace(own, classes=range(1000)).of_imagenet


def test_corruptions_without_their_probes_or_parameters_are_refused():
    with pytest.raises(ConfigError, match="errors are those of knn and linear; add one of them"):
        EvaluateConfig(probes="sgd", corruptions="dsf")
    with pytest.raises(ConfigError, match="corruption_set is 'tiny' and nothing is corrupted"):
        EvaluateConfig(corruption_set="tiny")
    with pytest.raises(ConfigError, match="takes 96 px; say whose parameters with --corruption-set"):
        level_set(None, 96)
    assert [level_set(None, side) for side in (32, 64, 224)] == ["cifar", "tiny", "imagenet"]
