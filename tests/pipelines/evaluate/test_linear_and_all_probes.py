import numpy as np
import pytest
import torch

from viewkit.pipelines.engine.seeds import stream
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.labelled import hold_out
from viewkit.pipelines.evaluate.linear import STRENGTHS, fit_linear_probe
from viewkit.pipelines.evaluate.probes import FeatureProbes
from viewkit.shards.errors import ConfigError, DataError


def clusters(per_class, c=6, d=12, seed=0):
    """Rows around one far direction a class, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(c), per_class)
    centres = 10 * np.eye(d)[:c]
    return torch.from_numpy(centres[labels] + rng.normal(size=(len(labels), d))).float(), labels


def keys_of(labels):
    return [f"row{place}" for place in range(len(labels))]


def probes(train, train_labels, test, test_labels, **options):
    config = EvaluateConfig(**options)
    held = hold_out(keys_of(train_labels), train_labels, config.split_share)
    features = FeatureProbes(
        train, train_labels, test, test_labels, held, config, lambda *names: stream(0, "test", *names), whose="'a'"
    )
    return {result["name"]: result for probe in config.chosen() for result in features.measure(probe)}


def test_clusters_that_do_not_touch_are_told_apart_by_every_probe():
    measured = probes(*clusters(20), *clusters(10, seed=1), k="20,5", probes="knn,linear,sgd")
    assert list(measured) == ["knn20", "knn5", "linear", "sgd"]
    assert all((each["top1"], each["top5"], each["mean_per_class"]) == (1, 1, 1) for each in measured.values())


def test_labels_that_have_nothing_to_do_with_the_features_give_chance():
    rng = np.random.default_rng(3)
    features, labels = torch.from_numpy(rng.normal(size=(720, 12))).float(), rng.permutation(np.arange(720) % 6)
    for each in probes(
        features[:360], labels[:360], features[360:], labels[360:], k="50", probes="knn,linear,sgd"
    ).values():
        assert abs(each["top1"] - 1 / 6) < 0.06 and abs(each["mean_per_class"] - 1 / 6) < 0.06
        assert abs(each["top5"] - 5 / 6) < 0.06


def test_a_k_above_the_number_of_images_is_cut_to_it_and_said():
    knn = probes(*clusters(5), *clusters(5, seed=1), probes="knn", k="20,200")
    assert (knn["knn20"]["k_used"], knn["knn200"]["k_used"], knn["knn200"]["k"]) == (20, 30, 200)


def test_two_classes_have_a_linear_probe_too():
    measured = probes(*clusters(20, c=2), *clusters(10, c=2, seed=1))["linear"]
    assert measured["top1"] == 1 and measured["top5"] is None and measured["strength"] in STRENGTHS


def test_one_image_a_class_leaves_nothing_to_choose_a_strength_on():
    measured = probes(*clusters(1), *clusters(10, seed=1), k="1")["linear"]
    assert measured["strength"] == 1.0 and measured["split_accuracy"] is None and measured["top1"] > 0.5


def test_the_strength_is_chosen_on_the_split_and_the_test_rows_change_nothing():
    train, labels = clusters(20)
    held = hold_out(keys_of(labels), labels, 0.2)
    other = clusters(10, seed=1)[0].numpy()
    some, all_ = (
        fit_linear_probe(train.numpy(), labels, rows, held=held, max_iterations=50) for rows in (other[:5], other)
    )
    assert some.strength == all_.strength and np.array_equal(some.scores, all_.scores[:5])


def test_scaled_and_shifted_features_give_the_same_linear_probe():
    (train, labels), (test, test_labels) = clusters(20), clusters(10, seed=1)
    plain = probes(train, labels, test, test_labels, k="1")["linear"]
    assert probes(100 * train + 7, labels, 100 * test + 7, test_labels, k="1")["linear"]["top1"] == plain["top1"]


def test_features_that_are_not_finite_stop_the_probes_and_name_the_run():
    train, labels = clusters(5)
    train[3, 2] = float("nan")
    with pytest.raises(DataError, match="features of 'a' are not finite"):
        probes(train, labels, *clusters(5, seed=1))


@pytest.mark.parametrize(
    "option", [{"k": "0"}, {"k": "20,"}, {"k": "20,20"}, {"k": "2.5"}, {"tau": 0.0}, {"split_share": 1.0},
               {"max_iterations": 0}, {"pixels_px": 0}, {"seed": -1}, {"probes": "knn,svm"}, {"probes": "knn,knn"},
               {"rates": "0.1,x"}, {"rates": "0"}, {"rates": "1,1.0"}, {"shares": "1"}, {"shares": "nan"},
               {"epochs": 0}, {"tune_epochs": 0}, {"seeds": 0}, {"batch_size": 1}, {"tune_batch_size": 1}],
)  # fmt: skip
def test_impossible_options_are_refused_by_name(option):
    (name,) = option
    with pytest.raises(ConfigError, match=f"evaluate: {name} is"):
        EvaluateConfig(**option)
