"""What a measuring stage found, as it wrote it down: tables of text, and pictures."""

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from viewkit.pipelines.report.pictures import Picture, fit_inside, picture
from viewkit.shards.artifact import Artifact
from viewkit.shards.codecs import decode_json
from viewkit.shards.files import read_file

MAX_PX = 900


@dataclass(frozen=True)
class FoundTable:
    """rows: cells as text, the first is the row's name. note: what the numbers mean."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Findings:
    """Tables and pictures with captions, in the order they are shown."""

    tables: tuple[FoundTable, ...]
    pictures: tuple[tuple[Picture, str], ...]


AUDIT_PICTURES = {
    "grid.png": "Pairs by Semantic Consistency and Alignment Level: how many, and how far apart their views are",
    "gallery_consistency.png": "Pairs by Semantic Consistency",
    "gallery_level.png": "Pairs by Alignment Level",
    "sensitivity.png": "Share of pairs that survive, for other thresholds",
    "roc.png": "How well each rule finds pairs without a shared object, and near-duplicates; below, in crops apart",
}


def read_findings(artifact: Artifact, file: str, captions: Mapping[str, str]) -> Findings:
    """file: JSON with ``tables``, each {title, note, columns, rows}. captions: by picture, if it is there."""
    tables = tuple(
        FoundTable(
            each["title"],
            each["note"],
            tuple(each["columns"]),
            tuple(tuple(str(cell) for cell in row) for row in each["rows"]),
        )
        for each in decode_json(read_file(artifact.path(file)))["tables"]
    )
    shown = [(name, caption) for name, caption in captions.items() if name in artifact.files]
    return Findings(tables, tuple((found_picture(artifact, name, caption), caption) for name, caption in shown))


def found_picture(artifact: Artifact, name: str, caption: str) -> Picture:
    """A picture among the files of an artifact."""
    with Image.open(io.BytesIO(read_file(artifact.path(name)))) as image:
        pixels = np.asarray(image.convert("RGB"))
    return picture(fit_inside(pixels, MAX_PX) if max(pixels.shape) > MAX_PX else pixels, caption)
