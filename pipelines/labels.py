"""Labels of a dataset's images: their own (``KEY.cls``), or those that `viewkit label` attached later."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool

from viewkit.shards.codecs import decode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.files import read_file

LABELS, FILE = "labels", "labels.json"
"""The artifact, and its one file: {"classes": {number: name}, "labels": {key: number}}."""
LABEL_HELP = (
    "attach labels with 'viewkit label DATASET --from FOLDER|CSV', or pack it with them ('viewkit pack SOURCE DATASET "
    "--labels folders', a folder for every class)"
)


MAX_DIGITS = 9
"""Of a class number."""


def class_number(label: bytes | None, key: str, where: str) -> int:
    """The number that a label is. `DataError` for another text, or for an image without one. where: for the message."""
    text = (label or b"").strip()
    if not text.isdigit() or len(text) > MAX_DIGITS:
        raise DataError(f"{where}: the label of '{key}' is {text[:20]!r} and must be a class number; {LABEL_HELP}")
    return int(text)


@dataclass(frozen=True)
class Labels:
    """attached: key -> class number, of images that have no label of their own. classes: class number -> name."""

    attached: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[int, str] = field(default_factory=dict)

    def of(self, key: str, fields: Mapping[str, bytes]) -> bytes | None:
        """The label of a row of `images`, as ``KEY.cls`` has it; the image's own counts first. None: it has none."""
        own = fields.get("cls")
        if own is None and key in self.attached:
            return b"%d" % self.attached[key]
        return own


def labels_of(dataset: Dataset) -> Labels:
    """What is attached to the images; nothing where `viewkit label` was not run.

    `DataError` where it is unfinished, damaged, or was attached to other images.
    """
    if not dataset.is_artifact(LABELS):
        return Labels()
    dataset.check_inputs(LABELS)
    path = dataset.artifact(LABELS).path(FILE)
    content = decode_json(read_file(path))
    try:
        classes = {int(number): str(name) for number, name in content["classes"].items()}
        return Labels({str(key): int(number) for key, number in content["labels"].items()}, classes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: is no file of labels ({error}); run 'viewkit label' with --redo") from error


def labelled_rows(images: Column, attached: Labels) -> Bool[np.ndarray, " n"]:
    """Which images have a label, their own or an attached one; of receipts alone."""
    found = images.index.has(("cls",))
    keys = images.index.keys
    for place in np.flatnonzero(~found) if attached.attached else ():
        found[place] = keys[place] in attached.attached
    return found


def labels_digest(dataset: Dataset, for_stage: str) -> str | None:
    """Content digest of the attached labels, for the identity of what reads them; None where there are none."""
    return dataset.input_digest(LABELS, for_stage) if dataset.is_artifact(LABELS) else None
