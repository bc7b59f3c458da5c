"""A dataset's pairs for FiftyOne, in the folder that its type ``FiftyOneDataset`` imports.

``samples.json`` has a sample per pair, on the image as a file below ``data/``, with the two crops as detections.
Without a version in ``metadata.json`` FiftyOne infers the fields from the samples, whatever release it is.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from viewkit.pipelines.export.table import SOURCES, ImageRow, Record
from viewkit.shards.codecs import image_field

OWN = ("label",)
"""Columns of the table that FiftyOne gets in another form."""


def write_fiftyone(folder: Path, images: Iterable[ImageRow]) -> int:
    """The number of pairs. folder: empty. Images without pairs are left out."""
    (folder / "data").mkdir()
    (folder / "metadata.json").write_text(json.dumps({"media_type": "image"}) + "\n")
    count = 0
    with open(folder / "samples.json", "x", encoding="utf-8") as file:
        file.write('{"samples": [')
        for image in images:
            if not image.records:
                continue
            extension, content = image_field(image.fields)
            path = f"data/{image.key}.{extension}"
            (folder / path).write_bytes(content)
            for record in image.records:
                file.write(",\n" if count else "\n")
                file.write(json.dumps(sample_of(image, record, path), allow_nan=False))
                count += 1
        file.write("\n]}\n")
    return count


def sample_of(image: ImageRow, record: Record, path: str) -> dict[str, Any]:
    """A pair as a FiftyOne sample; a view that was cropped from the generated image has no box on this one."""
    known = {name: value for name, value in record.items() if value is not None and name not in OWN}
    known = {name: value for name, value in known.items() if not name.startswith(("top", "left", "height", "width"))}
    boxes = [detection(record, number) for number in (1, 2) if record[f"source{number}"] == SOURCES[0]]
    label = image.class_name if image.class_name is not None else image.label
    sample = {"filepath": path, "tags": [], **known, "views": {"_cls": "Detections", "detections": boxes}}
    if label is not None:
        sample["ground_truth"] = {"_cls": "Classification", "tags": [], "label": str(label)}
    return sample


def detection(record: Record, number: int) -> dict[str, Any]:
    """The crop of view 1 or 2: [left, top, width, height] in fractions of the image."""
    box = [record[f"{side}{number}"] for side in ("left", "top", "width", "height")]
    return {"_cls": "Detection", "attributes": {}, "tags": [], "label": f"view {number}", "bounding_box": box}
