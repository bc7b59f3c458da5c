import math

import torch

from viewkit.pipelines.training.knn import knn_predict, top1


def test_the_votes_of_near_neighbours_weigh_more():
    def at(degrees):
        return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]

    train, labels = torch.tensor([at(5), at(40), at(-42)]), torch.tensor([0, 1, 1])
    test = torch.tensor([at(0)])
    assert knn_predict(train, labels, test, k=3, tau=0.07).item() == 0
    assert knn_predict(train, labels, test, k=3, tau=100.0).item() == 1


def test_predictions_equal_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    train, test = torch.randn(50, 8, generator=generator), torch.randn(23, 8, generator=generator)
    labels = torch.randint(0, 4, (50,), generator=generator)
    expected = []
    for row in test:
        cosine = torch.nn.functional.cosine_similarity(train, row[None], dim=1)
        votes = [0.0] * 4
        for index in cosine.argsort(descending=True)[:7].tolist():
            votes[labels[index]] += math.exp(cosine[index] / 0.07)
        expected.append(max(range(4), key=votes.__getitem__))
    assert knn_predict(train, labels, test, k=7).tolist() == expected


def test_no_row_votes_for_itself_when_left_out():
    features = torch.eye(4)[[0, 0, 1, 1]] + 0.01 * torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3])
    assert knn_predict(features, labels, features, k=1).tolist() == [0, 1, 2, 3]
    assert knn_predict(features, labels, features, k=1, leave_one_out=True).tolist() == [1, 0, 3, 2]


def test_balanced_accuracy_is_the_mean_over_classes():
    labels, predicted = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 0, 0])
    assert top1(predicted, labels) == 0.75
    assert top1(predicted, labels, balanced=True) == 0.5
