import numpy as np
import pytest

from viewkit.pipelines.evaluate.accuracy import measure_accuracy, over_seeds


def test_right_scores_give_one_and_wrong_ones_zero():
    labels = np.array([0, 1, 2, 2])
    right = np.eye(3)[labels]
    assert measure_accuracy(right, labels) == {"top1": 1.0, "top5": None, "mean_per_class": 1.0}
    assert measure_accuracy(np.roll(right, 1, axis=1), labels)["top1"] == 0.0


def test_top_5_counts_the_first_five_of_more_than_five_classes():
    scores = np.tile(np.arange(7.0), (7, 1))  # class 6 first, class 0 last
    measured = measure_accuracy(scores, np.arange(7))
    assert measured["top1"] == pytest.approx(1 / 7) and measured["top5"] == pytest.approx(5 / 7)


def test_the_mean_per_class_weighs_a_rare_class_like_a_common_one():
    labels = np.array([0] * 9 + [1])
    always_zero = np.tile([1.0, 0.0], (10, 1))
    assert measure_accuracy(always_zero, labels) == {"top1": 0.9, "top5": None, "mean_per_class": 0.5}


def test_a_class_without_any_vote_is_never_found():
    scores = np.full((2, 6), -np.inf)
    scores[:, 0] = 1.0
    assert measure_accuracy(scores, np.array([0, 1]))["top5"] == 0.5


def test_equal_scores_rank_by_class_number():
    assert measure_accuracy(np.zeros((3, 3)), np.array([0, 1, 2]))["top1"] == pytest.approx(1 / 3)


def test_balanced_accuracy_and_top_1_are_those_of_scikit_learn():
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, top_k_accuracy_score

    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(200, 8)), rng.choice(8, 200, p=np.arange(1, 9) / 36)
    measured = measure_accuracy(scores, labels)
    assert measured["top1"] == pytest.approx(accuracy_score(labels, scores.argmax(axis=1)))
    assert measured["mean_per_class"] == pytest.approx(balanced_accuracy_score(labels, scores.argmax(axis=1)))
    assert measured["top5"] == pytest.approx(top_k_accuracy_score(labels, scores, k=5))


def test_repetitions_give_a_mean_and_a_standard_deviation():
    measured = [{"top1": 0.5, "top5": None}, {"top1": 0.7, "top5": None}]
    assert over_seeds(measured) == {
        "seeds": 2, "top1": pytest.approx(0.6), "top1_std": pytest.approx(0.02**0.5), "top5": None, "top5_std": None,
    }  # fmt: skip
    assert over_seeds(measured[:1])["top1_std"] is None
