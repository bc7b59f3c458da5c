import math

import numpy as np
import pytest
import torch

from viewkit.pipelines.training import neighbours
from viewkit.pipelines.training.knn import knn_predict
from viewkit.pipelines.training.neighbours import vote


def drawn(m=60, n=40, d=8, c=5, seed=0):
    rng = np.random.default_rng(seed)
    train, test = (torch.from_numpy(rng.normal(size=(count, d))).float() for count in (m, n))
    return train, torch.from_numpy(rng.integers(0, c, m)), test


def test_neighbours_vote_with_the_exponential_of_their_cosine():
    train = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    scores = vote(train, torch.tensor([0, 1, 1]), torch.tensor([[2.0, 0.0]]), neighbours=(2, 3), tau=0.5, num_classes=3)
    assert scores[2][0].tolist() == pytest.approx([1.0, math.exp((0.6 - 1) / 0.5), -math.inf])
    assert scores[3][0, 1].item() == pytest.approx(math.exp((0.6 - 1) / 0.5) + math.exp((0.0 - 1) / 0.5))


@pytest.mark.parametrize("k", [1, 7, 60])
def test_the_class_with_most_votes_is_the_one_the_trainers_probe_predicts(k):
    train, labels, test = drawn()
    scores = vote(train, labels, test, neighbours=(k,), tau=0.07, num_classes=5)[k]
    assert torch.equal(scores.argmax(1), knn_predict(train, labels, test, k=k))


def test_many_neighbours_and_few_are_counted_in_one_pass_as_in_two():
    train, labels, test = drawn()
    both = vote(train, labels, test, neighbours=(3, 20), tau=0.07, num_classes=5)
    for k, scores in both.items():
        torch.testing.assert_close(scores, vote(train, labels, test, neighbours=(k,), tau=0.07, num_classes=5)[k])


def test_the_chunks_do_not_count(monkeypatch):
    train, labels, test = drawn()
    whole = vote(train, labels, test, neighbours=(9,), tau=0.07, num_classes=5)[9]
    monkeypatch.setattr(neighbours, "CHUNK", 7 * len(train))
    torch.testing.assert_close(vote(train, labels, test, neighbours=(9,), tau=0.07, num_classes=5)[9], whole)


def test_a_tiny_temperature_does_not_overflow():
    train, labels, test = drawn()
    scores = vote(train, labels, test, neighbours=(5,), tau=1e-4, num_classes=5)[5]
    assert not scores.isnan().any() and (scores.amax(1) >= 1).all()
