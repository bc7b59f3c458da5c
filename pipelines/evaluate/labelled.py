"""Labelled images of a dataset: their classes, their pixels, and parts with the same share of every class.

A part is decided by the hashes of the keys alone, so it depends neither on a seed nor on the order or sharding of the
rows, and never on test images.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int

from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.labels import LABEL_HELP, Labels, class_number, labelled_rows, labels_of
from viewkit.pipelines.pairs.samples import Sample, SampleReader
from viewkit.shards.codecs import decode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.row import Row

ALIKE = "give a class one name in both (folders of the same names, or 'viewkit label'): classes are matched by these"


@dataclass(frozen=True)
class Labelled:
    """The rows of an `images` column in order, with the class number of each. names: class number -> name, of classes
    that have one."""

    column: Column
    labels: Int[np.ndarray, " n"]
    names: Mapping[int, str] = field(default_factory=dict)

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
    """The labelled images of `dataset`. Raises DataError when a label is not a class number, or one number has several
    names."""
    column, attached = find_labelled(dataset, role), labels_of(dataset)
    labels, names = np.empty(column.num_rows, dtype=np.int64), dict[int, str]()
    index, where = 0, f"evaluate: the {role} dataset {dataset.path}"
    for shard in range(column.num_shards):
        for row in column.rows(shard):
            labels[index] = number = class_number(attached.of(row.key, row.fields), row.key, where)
            name = _class_name(row, number, attached)
            if name is not None and (number not in names or not _is_name(names[number], number)):
                names[number] = name
            if name is not None and _is_name(name, number) and names[number] != name:
                raise DataError(
                    f"{where}: class {number} has the names {names[number]!r} and {name!r} (image "
                    f"{row.key}); attach the labels anew with 'viewkit label', or pack the images anew"
                )
            index += 1
    return Labelled(column, labels, names)


def _class_name(row: Row, number: int, attached: Labels) -> str | None:
    if "cls" not in row.fields:
        return attached.classes.get(number)
    return decode_json(row.fields["json"]).get("label") if "json" in row.fields else None


def _is_name(name: str, number: int) -> bool:
    """Whether it says more than the class's number: labels that were given as numbers are called like these."""
    return not (name.isascii() and name.isdigit() and int(name) == number)


def numbered_alike(train: Labelled, test: Labelled) -> Labelled:
    """`test` with the class numbers of `train`: by the classes' names where all have names and both sides the same
    ones, else as they are.

    `DataError` where a number then means two classes.
    """
    number_of = {name: number for number, name in train.names.items()}
    all_named = all(each.names.keys() >= set(each.classes) for each in (train, test))
    if all_named and len(number_of) == len(train.names) and set(test.names.values()) == number_of.keys():
        names = {number: number_of[name] for number, name in test.names.items()}
        labels = np.array([names[number] for number in test.classes])[np.searchsorted(test.classes, test.labels)]
        return Labelled(test.column, labels, train.names)
    for number in sorted(train.names.keys() & test.names.keys()):
        both = {train.names[number], test.names[number]}
        if len(both) > 1 and all(_is_name(name, number) for name in both):
            raise DataError(
                f"evaluate: class {number} is {train.names[number]!r} in the train dataset "
                f"{train.column.path.parent} and {test.names[number]!r} in the test dataset "
                f"{test.column.path.parent}; {ALIKE}"
            )
    return test


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
            f"dataset {test.column.path.parent} ({len(theirs)}) differ: {'; '.join(only)}; {ALIKE}"
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
