"""Stage `label`: labels for images that were packed without; no image and no key changes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.labels import FILE, LABELS, class_number
from viewkit.pipelines.pack.keys import display
from viewkit.pipelines.pack.label_config import LabelConfig
from viewkit.pipelines.pack.labels import Entry, match, numbers_of, read_entries
from viewkit.shards.codecs import decode_json, encode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import write_atomic


class LabelStage(FitStage[LabelConfig]):
    """from_: a folder with a folder for every class, or a CSV file of lines ``image,class``."""

    name = "label"
    writes = LABELS
    shown_as = LABELS
    holds: ClassVar[Mapping[str, str]] = {
        FILE: "classes: class number -> name; labels: key -> class number, of the images that were found",
    }

    def __init__(self, from_: str | None = None) -> None:
        self.source = None if from_ is None else Path(from_)
        self._entries: list[Entry] | None = None

    def check(self, config: LabelConfig) -> None:
        if self.source is None:
            raise ConfigError("label: --from is needed: a folder of class folders, or a CSV file of lines IMAGE,CLASS")

    def reads(self, config: LabelConfig) -> tuple[str, ...]:
        return ("images",)

    @property
    def entries(self) -> list[Entry]:
        """What the source says, read once."""
        if self._entries is None:
            assert self.source is not None
            self._entries = read_entries(self.source)
        return self._entries

    def inputs(self, config: LabelConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also what the source says, and that classes which some images have already keep their numbers: they once did
        not. Images that are all labelled already are refused here, before anything is."""
        found = super().inputs(config, dataset)
        index = dataset.column("images").index
        labelled = int(index.has(("cls",)).sum())
        if len(index) and labelled == len(index):
            raise DataError(
                f"label: all {labelled} images of {dataset.path} have labels of their own, which count first; pack "
                "them anew without --labels to attach others"
            )
        said = digest([[*entry.names, entry.label] for entry in self.entries])
        own = {"own classes": "keep their numbers"} if labelled else {}
        return {**found, "label source": said, **own}

    def fit(self, config: LabelConfig, run: Run) -> Mapping[str, Any]:
        images = run.dataset.column("images")
        found = match(self.entries, images.place_of, config.match, lambda: paths_of(images))
        if not found.labels:
            first = display(self.entries[0].where)
            raise DataError(
                f"label: none of the {len(self.entries)} entries of {self.source} is an image of {run.dataset.path} "
                f"(first: {first}); an image is named by its key or its path in the packed source, which 'viewkit "
                f"inspect {run.dataset.path} KEY' shows"
            )
        for line in unlabelled_lines(str(self.source), found.unmatched, images, found.labels):
            run.progress.message(f"{self.name}: {line}")
        numbers = numbers_of([entry.label for entry in self.entries], own_classes(images))
        content = {
            "classes": {str(number): name for name, number in numbers.items()},
            "labels": {key: numbers[label] for key, label in sorted(found.labels.items())},
        }
        write_atomic(run.folder / FILE, encode_json(content))
        return {
            "labelled": len(found.labels),
            "images": images.num_rows,
            "classes": len(set(found.labels.values())),
            "unmatched": len(found.unmatched),
        }


def own_classes(images: Column) -> dict[int, str | None]:
    """Class number -> name, None where KEY.json has none, of the images that have labels of their own.

    `DataError` where a label is no class number, or a number has two names.
    """
    found: dict[int, str | None] = {}
    for place in np.flatnonzero(images.index.has(("cls",))).tolist():
        key, fields = images.keys()[place], images.fields(place)
        number = class_number(fields["cls"], key, f"label: {images.path}")
        name = decode_json(fields["json"]).get("label")
        if found.setdefault(number, name) != name:
            raise DataError(
                f"label: {images.path}: class {number} has the names '{display(str(found[number]))}' and "
                f"'{display(str(name))}' (image {key}); pack the images anew"
            )
    return found


def unlabelled_lines(source: str, unmatched: Sequence[Entry], images: Column, labels: Mapping[str, str]) -> list[str]:
    """What did not fit, for people."""
    said = []
    if unmatched:
        shown = ", ".join(display(entry.where) for entry in unmatched[:3])
        said.append(f"{len(unmatched)} entries of {source} are no image of this dataset (first: {shown})")
    own = images.index.has(("cls",)).tolist()
    lacking = [key for key, has_own in zip(images.keys(), own, strict=True) if not has_own and key not in labels]
    if lacking:
        said.append(f"{len(lacking)} of {images.num_rows} images have no label (first: {', '.join(lacking[:3])})")
    return said


def paths_of(images: Column) -> dict[str, str]:
    """Key -> path in the packed source, of every image."""
    return {key: str(decode_json(images.fields(place)["json"])["source"]) for key, place in images.place_of.items()}
