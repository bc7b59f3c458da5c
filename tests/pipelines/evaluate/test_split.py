import numpy as np
import pytest
from vs2fi_world import write_column

from viewkit.pipelines.evaluate.labelled import (
    Labelled,
    hold_out,
    labelled_part,
    numbered_alike,
    read_labelled,
    same_classes,
)
from viewkit.shards.codecs import encode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.row import Row

LABELS = np.repeat([0, 1, 2, 3], [40, 10, 2, 1])
KEYS = [f"key{place}" for place in range(len(LABELS))]


def counts(chosen):
    return [int(chosen[label == LABELS].sum()) for label in range(4)]


def test_the_held_out_share_is_that_of_every_class_and_never_all_of_one():
    assert counts(hold_out(KEYS, LABELS, 0.2)) == [8, 2, 1, 0]
    assert counts(hold_out(KEYS, LABELS, 0.99)) == [39, 9, 1, 0]


def test_a_labelled_part_has_at_least_one_row_of_every_class():
    assert counts(labelled_part(KEYS, LABELS, 0.1)) == [4, 1, 1, 1]
    assert counts(labelled_part(KEYS, LABELS, 0.01)) == [1, 1, 1, 1]


@pytest.mark.parametrize("part", [hold_out, labelled_part])
def test_the_order_of_the_rows_changes_nothing(part):
    order = np.random.default_rng(0).permutation(len(KEYS))
    shuffled = part([KEYS[place] for place in order], LABELS[order], 0.2)
    assert {KEYS[place] for place in order[shuffled]} == {
        KEYS[place] for place in np.flatnonzero(part(KEYS, LABELS, 0.2))
    }


def test_a_smaller_share_lies_within_a_larger_one():
    assert not (labelled_part(KEYS, LABELS, 0.1) & ~labelled_part(KEYS, LABELS, 0.5)).any()


def labelled(path, classes, *numbers):
    return Labelled(Column(path / "images"), np.array(numbers or sorted(classes)), classes)


def test_classes_of_the_test_dataset_are_matched_by_name(tmp_path):
    train = labelled(tmp_path / "train", {0: "ant", 1: "cat", 2: "bee"})  # bee came later
    test = numbered_alike(train, labelled(tmp_path / "test", {0: "ant", 1: "bee", 2: "cat"}, 0, 1, 2, 1))
    assert test.labels.tolist() == [0, 2, 1, 2] and same_classes(train, test) == [0, 1, 2]


def test_folders_called_like_numbers_are_names(tmp_path):
    train = labelled(tmp_path / "train", {0: "0", 1: "10", 2: "2"})
    test = numbered_alike(train, labelled(tmp_path / "test", {0: "0", 2: "2", 10: "10"}))
    assert test.labels.tolist() == [0, 2, 1]


def test_a_number_that_means_two_classes_is_refused(tmp_path):
    train, test = (
        labelled(tmp_path / "train", {0: "cat", 1: "dog"}),
        labelled(tmp_path / "test", {0: "dog", 1: "eagle"}),
    )
    said = r"class 0 is 'cat' in the train dataset .*train and 'dog' in the test dataset .*test; give a class one name"
    with pytest.raises(DataError, match=said):
        numbered_alike(train, test)


@pytest.mark.parametrize("names", [{}, {0: "0", 1: "1"}, {0: "cat"}])
def test_without_names_on_one_side_numbers_count(tmp_path, names):
    train, test = labelled(tmp_path / "train", {0: "cat", 1: "dog"}), labelled(tmp_path / "test", names, 1, 0)
    assert numbered_alike(train, test).labels.tolist() == [1, 0]
    assert numbered_alike(test, train).labels.tolist() == [0, 1]


def test_names_are_read_with_the_labels_and_a_number_has_one(tmp_path):
    dataset = Dataset(tmp_path)
    about = [("cat", 0), ("dog", 1), ("cat", 0)]
    rows = [
        Row(f"k{i}", {"png": b"x", "cls": b"%d" % n, "json": encode_json({"label": name})})
        for i, (name, n) in enumerate(about)
    ]
    write_column(dataset, "images", rows, 4)
    found = read_labelled(dataset, "test")
    assert found.labels.tolist() == [0, 1, 0] and found.names == {0: "cat", 1: "dog"}
    write_column(Dataset(tmp_path / "other"), "images", [*rows, Row("k3", {**rows[0].fields, "cls": b"1"})], 4)
    with pytest.raises(
        DataError, match=r"the test dataset .*: class 1 has the names 'dog' and 'cat' \(image k3\); attach"
    ):
        read_labelled(Dataset(tmp_path / "other"), "test")
