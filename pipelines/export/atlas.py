"""A table of pairs for Embedding Atlas: JSON lines with a place in the plane and a picture for every pair."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from viewkit.pipelines.export.pictures import pictures_of
from viewkit.pipelines.export.projection import AXES, Projection
from viewkit.pipelines.export.table import ImageRow, PairTable, Record
from viewkit.pipelines.export.writers import write_jsonl
from viewkit.pipelines.pairs.same_policy import interpolation_of
from viewkit.shards.errors import ConfigError

X, Y = "semantic_consistency", "alignment_level"
LEVELS = ("alignment_level",)
"""Columns of floats that hold whole numbers."""
SPREAD = 0.35
"""Whole numbers are moved by at most this much, so that points of one level do not lie on each other."""


def write_atlas(
    path: Path,
    table: PairTable,
    images: Iterable[ImageRow],
    *,
    x: str | None,
    y: str | None,
    side_px: int,
    projection: Projection | None = None,
) -> int:
    """The number of pairs. Columns ``x`` and ``y`` are those asked for, ``picture`` both views as a data URL.

    x, y: numeric columns of the table, or with a projection `AXES`, which are then columns, too. A small, fixed shift
    is added to one of whole numbers (rounds, levels); the column itself stays as it is. `ConfigError` for a column that
    is not there, or is no number.
    """
    names = [check_axis(table, name, axis) for name, axis in ((x or X, "x"), (y or Y, "y"))]
    interpolation = interpolation_of(table.pairs.identity)
    axes = dict.fromkeys(AXES if projection is not None else (), float)
    whole = [table.kinds.get(name) is int or name in LEVELS for name in names]
    kinds = {**table.kinds, **axes, "x": float, "y": float, "picture": str}

    def records() -> Iterator[Record]:
        for image in images:
            places_of = (
                projection.places(image) if projection is not None and image.records else [{}] * len(image.records)
            )
            pictures = pictures_of(image, side_px, interpolation)
            for own, place, picture in zip(image.records, places_of, pictures, strict=True):
                record = {**own, **place}
                shifts = shifts_of(record)
                places = [
                    _place(record[name], shift if scattered else 0.0)
                    for name, shift, scattered in zip(names, shifts, whole, strict=True)
                ]
                yield {**record, "x": places[0], "y": places[1], "picture": picture}

    return write_jsonl(path, kinds, records())


def check_axis(table: PairTable, name: str, axis: str) -> str:
    """The name, if it is a column of numbers."""
    numbers = [*(each for each, kind in table.kinds.items() if kind is not str), *AXES]
    if name not in numbers:
        raise ConfigError(
            f"export: --{axis} is '{name}', which is no column of numbers of '{table.pairs.name}'; "
            f"choose one of {', '.join(numbers)}"
        )
    return name


def shifts_of(record: Record) -> list[float]:
    """Two numbers in [-SPREAD, SPREAD] that the pair alone decides."""
    digest = hashlib.sha256(f"{record['key']} {record['round']} {record['pair']}".encode()).digest()
    parts = [digest[start:end] for start, end in pairwise((0, 4, 8))]
    return [(int.from_bytes(part) / 2**32 * 2 - 1) * SPREAD for part in parts]


def _place(value: float | None, shift: float) -> float | None:
    if value is None:
        return None
    return round(value + shift, 4) if shift else value
