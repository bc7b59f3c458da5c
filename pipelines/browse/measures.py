"""What is known of every pair beside its indicators, for the axes of the page. NaN: unknown."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float32, Int64

from viewkit.pipelines.browse.candidates import Groups
from viewkit.pipelines.labels import Labels
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.recipe import BOX
from viewkit.shards.codecs import decode_json, decode_npy
from viewkit.shards.column import Column
from viewkit.shards.errors import DataError


def crop_overlaps(groups: Groups) -> Float32[np.ndarray, "g c"]:
    """Intersection over union of the crops; NaN where they are of different images."""
    first, second = groups.views.T
    boxes = groups.recipes[..., BOX].astype(np.float64)
    together = groups.source[:, first] == groups.source[:, second]
    return np.where(together, overlap(boxes[:, first], boxes[:, second]), np.nan).astype(np.float32)


def pair_qualities(groups: Groups, quality: Column) -> Float32[np.ndarray, "g c"]:
    """GenView's q of every pair; NaN for rows that were rejected. `DataError` for arrays of another shape."""
    found = np.full((len(groups.keys), len(groups.views)), np.nan, dtype=np.float32)
    kept: dict[str, np.ndarray] = {}
    for place, (key, round_) in enumerate(zip(groups.keys, groups.places.tolist(), strict=True)):
        if key not in quality.place_of:
            continue
        if key not in kept:
            kept[key] = decode_npy(quality.fields(quality.place_of[key])["quality.npy"])
        if kept[key].ndim != 2 or round_ >= len(kept[key]) or kept[key].shape[1] != found.shape[1]:
            raise DataError(
                f"column '{quality.name}': row {key} has shape {kept[key].shape}, which is not that of its pairs; "
                "delete the column and rerun 'viewkit quality'"
            )
        found[place] = kept[key][round_]
    return found


def noise_levels(keys: Sequence[str], genview: Column) -> Float32[np.ndarray, " n"]:
    """Noise level of every image's generated view; NaN where it has none."""
    found = np.full(len(keys), np.nan, dtype=np.float32)
    for place, key in enumerate(keys):
        if key in genview.place_of:
            level = decode_json(genview.fields(genview.place_of[key])["json"]).get("level")
            found[place] = np.nan if level is None else level
    return found


NO_CLASS = 2**16 - 1


def read_classes(
    keys: Sequence[str], images: Column, labels: Labels | None = None
) -> tuple[Int64[np.ndarray, " n"], list[str]]:
    """Place of every image's class among the names, `NO_CLASS` without one; names in the order of their numbers.

    labels: attached later; an image's own counts first. A class without a name is called by its number. Nothing is
    read where there are no labels at all.
    """
    labels = Labels() if labels is None else labels
    numbers = np.full(len(keys), -1, dtype=np.int64)
    names: dict[int, str] = {}
    if labels.attached or "cls" in images.index.extensions:
        for place, key in enumerate(keys):
            fields = images.fields(images.place_of[key])
            label = labels.of(key, fields)
            if label is not None:
                number = numbers[place] = int(label)
                if number not in names:
                    name = _facts(fields).get("label") if "cls" in fields else labels.classes.get(number)
                    names[number] = str(number if name is None else name)
    order = {number: place for place, number in enumerate(sorted(names))}
    places = np.array([order.get(number, NO_CLASS) for number in numbers.tolist()], dtype=np.int64)
    return places, [names[number] for number in order]


def _facts(fields: Mapping[str, bytes]) -> Mapping[str, object]:
    found = decode_json(fields["json"]) if "json" in fields else {}
    return found if isinstance(found, Mapping) else {}
