"""Labelled images of a dataset: their classes, their pixels, and parts with the same share of every class.

A part is decided by the hashes of the keys alone, so it depends neither on a seed nor on the order or sharding of the
rows, and never on test images.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.labels import LABEL_HELP, class_number, labelled_rows, labels_of
from viewkit.pipelines.pairs.samples import Sample, SampleReader
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError


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
    """The `images` column of `dataset`; `role` ("train", "test") names it in errors. Looks at receipts only, and at
    what `viewkit label` attached.

    Raises DataError when there are no images, or one has no label.
    """
    column = dataset.column("images")
    index = column.index
    if not len(index):
        raise DataError(f"evaluate: the {role} dataset {dataset.path} has no images; pack some into it")
    unlabelled = np.flatnonzero(~labelled_rows(column, labels_of(dataset)))
    if unlabelled.size:
        raise DataError(
            f"evaluate: the {role} dataset {dataset.path} has no label for {unlabelled.size} of its {len(index)} "
            f"images (first: {index.keys[unlabelled[0]]}) and a probe needs one for each; {LABEL_HELP}"
        )
    return column


def read_labelled(dataset: Dataset, role: str) -> Labelled:
    """The labelled images of `dataset`. Raises DataError when a label is not a class number."""
    column, attached = find_labelled(dataset, role), labels_of(dataset)
    labels = np.empty(column.num_rows, dtype=np.int64)
    index = 0
    for shard in range(column.num_shards):
        for row in column.rows(shard):
            label = attached.of(row.key, row.fields)
            labels[index] = class_number(label, row.key, f"evaluate: the {role} dataset {dataset.path}")
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


def hold_out(keys: Sequence[str], labels: Int[np.ndarray, " n"], share: float) -> Bool[np.ndarray, " n"]:
    """A mask of rows that choose a setting: `share` of every class, rounded, of a class of two or more at least one
    and never all."""
    return _part(keys, labels, share, leave=1)


def labelled_part(keys: Sequence[str], labels: Int[np.ndarray, " n"], share: float) -> Bool[np.ndarray, " n"]:
    """A mask of the rows whose labels a semi-supervised probe may see: `share` of every class, at least one row."""
    return _part(keys, labels, share, leave=0)


def _part(keys: Sequence[str], labels: Int[np.ndarray, " n"], share: float, leave: int) -> Bool[np.ndarray, " n"]:
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        place = {keys[row]: row for row in map(int, np.flatnonzero(labels == label))}
        wanted = min(max(1, round(share * len(place))), len(place) - leave)
        chosen[[place[key] for key in smallest(place, wanted)]] = True
    return chosen
