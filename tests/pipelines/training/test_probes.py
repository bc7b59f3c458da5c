import math

import pytest
import torch
from small_datasets import coloured
from vs2fi_world import write_column

from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.stage import prepare
from viewkit.pipelines.training.knn import knn_predict, top1
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError
from viewkit.shards.files import make_folder
from viewkit.shards.row import Row

SMALL = {"framework": "simclr", "arch": "resnet10_narrow", "steps": 4, "batch_size": 6, "hidden": 16, "dim": 16}


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


def prepared(dataset, **options):
    run = Run(dataset, dataset.path / "runs" / "none", "pretrain", seed=0)
    return prepare(resolve(make_config(PretrainConfig, {**SMALL, **options}, "test")), run)


def copied(path, rows):
    make_folder(path)
    write_column(Dataset(path), "images", rows, shard_rows=4)
    return Dataset(path)


def test_where_some_images_have_a_label_those_are_probed(tmp_path):
    """As in a dataset that has no others, wherever the ones without a label stand."""
    whole = coloured(tmp_path / "whole", 6, seed=0).column("images")
    rows = [Row(key, whole.fields(place)) for place, key in enumerate(whole.keys())]
    bare = [Row(f"bare{n}", {"png": rows[n].fields["png"]}) for n in range(5)]
    some = prepared(copied(tmp_path / "some", [*bare[:2], *rows[:9], *bare[2:], *rows[9:]]), knn_epochs=1)
    all_of_them = prepared(copied(tmp_path / "all", rows))
    assert some.probe.labelled == [row.key for row in rows]
    found = some.probe(some.framework)
    assert found["knn_top1"] > 0.5 and found == all_of_them.probe(all_of_them.framework)


@pytest.mark.parametrize(("labelled", "said"), [(0, "none"), (1, "1")])
def test_the_probe_is_refused_where_no_image_can_vote_for_another(tmp_path, labelled, said):
    images = coloured(tmp_path / "bare", 2, seed=0, labels=False).column("images")
    rows = [Row(key, {**images.fields(place), **({"cls": b"0"} if place < labelled else {})})
            for place, key in enumerate(images.keys())]  # fmt: skip
    dataset = copied(tmp_path / "copied", rows)
    with pytest.raises(ConfigError, match=f"knn_epochs is 1 and {said} of the 6 images has a label; leave"):
        prepared(dataset, knn_epochs=1)
    assert prepared(dataset).probe.labelled == [row.key for row in rows[:labelled]]
