"""Labelled images of a dataset: their classes, and their pixels in batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from viewkit.pipelines.training.samples import Sample, SampleReader
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError

LABEL_HELP = "pack it with labels, e.g. 'viewkit pack SOURCE DATASET --labels folders' (a folder for every class)"
MOST_DIGITS = 9


@dataclass(frozen=True)
class Labelled:
    """The rows of an `images` column in order, with the class number of each."""

    column: Column
    labels: Int[np.ndarray, " n"]

    @property
    def classes(self) -> list[int]:
        return [int(label) for label in np.unique(self.labels)]

    def samples(self) -> Iterator[Sample]:
        reader = SampleReader(cache_bytes=0)
        for shard in range(self.column.num_shards):
            yield from map(reader, self.column.rows(shard))


def find_labelled(dataset: Dataset, role: str) -> Column:
    """The `images` column of `dataset`; `role` ("train", "test") names it in errors. Looks at receipts only.

    Raises DataError when there are no images, or one has no label.
    """
    column = dataset.column("images")
    index = column.index
    if not len(index):
        raise DataError(f"evaluate: the {role} dataset {dataset.path} has no images; pack some into it")
    number = index.extensions.index("cls") if "cls" in index.extensions else -1
    is_label = np.concatenate([[0], np.cumsum(index.extension == number)])
    unlabelled = np.flatnonzero(np.diff(is_label[index.first_member]) == 0)
    if unlabelled.size:
        raise DataError(
            f"evaluate: the {role} dataset {dataset.path} has no label for {unlabelled.size} of its {len(index)} "
            f"images (first: {index.keys[unlabelled[0]]}) and a probe needs one for each; {LABEL_HELP}"
        )
    return column


def read_labelled(dataset: Dataset, role: str) -> Labelled:
    """The labelled images of `dataset`. Raises DataError when a label is not a class number."""
    column = find_labelled(dataset, role)
    labels = np.empty(column.num_rows, dtype=np.int64)
    index = 0
    for shard in range(column.num_shards):
        for row in column.rows(shard):
            raw = row.fields["cls"].strip()
            if not raw.isdigit() or len(raw) > MOST_DIGITS:
                raise DataError(
                    f"evaluate: the {role} dataset {dataset.path}: the label of '{row.key}' is {raw[:20]!r} and must "
                    f"be a class number; {LABEL_HELP}"
                )
            labels[index] = int(raw)
            index += 1
    return Labelled(column, labels)


def same_classes(train: Labelled, test: Labelled) -> list[int]:
    """The class numbers that both have, in order; `DataError` naming the first of those that only one has."""
    ours, theirs = set(train.classes), set(test.classes)
    if ours != theirs:
        only = [
            f"only {role} has {len(extra)} (first: {', '.join(map(str, sorted(extra)[:5]))})"
            for role, extra in (("train", ours - theirs), ("test", theirs - ours))
            if extra
        ]
        raise DataError(
            f"evaluate: the classes of the train dataset {train.column.path.parent} ({len(ours)}) and of the test "
            f"dataset {test.column.path.parent} ({len(theirs)}) differ: {'; '.join(only)}; pack both from folders of "
            "the same names, so that a class has the same number in both"
        )
    if len(ours) < 2:
        raise DataError(
            f"evaluate: all images of {train.column.path.parent} are of class {min(ours)}; a probe needs two "
            f"classes at least; {LABEL_HELP}"
        )
    return sorted(ours)
