"""Which annotated objects a view shows: masks or boxes of the image, cut as the view is. Flips change nothing."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, Int64
from PIL import Image

from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.recipe import ORIGINAL, SOURCE, pixel_boxes
from viewkit.shards.codecs import DECODER_ERRORS, decode_json, one_line
from viewkit.shards.errors import DataError

MASK = "mask.png"
SETS = {
    "things": "countable objects, each for itself",
    "thing_categories": "categories of countable objects",
    "segments": "objects and surroundings such as sky, each for itself",
    "categories": "categories of objects and surroundings",
}
"""What is compared between two views. Two people are one thing category and two things."""


@dataclass(frozen=True, eq=False)
class Annotation:
    """k objects of an image. boxes: (top, left, height, width) in px. mask: `values` in the image's size."""

    categories: tuple[str, ...]
    is_thing: Bool[np.ndarray, " k"]
    boxes: Float64[np.ndarray, "k 4"]
    mask: Int[np.ndarray, "h w"] | None
    values: Int64[np.ndarray, " k"]


class Unusable(Exception):
    """An annotation that does not fit its image. The text is one of a few reasons, to be counted."""


def read_annotation(fields: Mapping[str, bytes], size_px: tuple[int, int], where: str) -> Annotation:
    """The objects of a row of `images`: its source's KEY.json with ``objects`` or COCO's ``annotations``, KEY.mask.png.

    An object has ``bbox`` (left, top, width, height in px), ``category`` or ``category_id``, perhaps ``isthing`` (true
    where it is not said) and, where there is a mask, ``value``. Polygons are not read: without a mask, boxes count.
    Raises `Unusable` where there is none or it does not fit the image, `DataError` for one that cannot be read.
    """
    facts = decode_json(fields["json"]) if "json" in fields else {}
    metadata = facts.get("metadata") if isinstance(facts, dict) else None
    if not isinstance(metadata, dict):
        metadata = {}
    listed = metadata.get("objects", metadata.get("annotations"))
    if not isinstance(listed, list) or not listed:
        raise Unusable("no objects are listed")
    if "exif_orientation" in facts.get("done", ()):
        raise Unusable("the image was turned when it was packed")
    mask = read_mask(fields[MASK], where) if MASK in fields else None
    whole = size_of_source(facts, size_px)
    if mask is not None and mask.shape != whole:
        raise Unusable("the mask is of another size than the image")
    declared = metadata.get("height", whole[0]), metadata.get("width", whole[1])
    if mask is None and declared != whole:
        raise Unusable("the boxes are of an image of another size")
    scale = np.tile(np.array(size_px) / np.array(whole), 2)
    mask = mask if mask is None or whole == size_px else nearest(mask, size_px)
    try:
        return Annotation(
            tuple(_category(each) for each in listed),
            np.array([bool(each.get("isthing", True)) for each in listed]),
            np.array([_box(each) for each in listed], dtype=np.float64).reshape(-1, 4) * scale,
            mask,
            np.array([each["value"] if mask is not None else 0 for each in listed], dtype=np.int64),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{where}: its objects cannot be read ({error!r}); each needs 'bbox' and 'category' or 'category_id', and "
            "'value' where there is a mask"
        ) from error


def size_of_source(facts: Mapping[str, Any], size_px: tuple[int, int]) -> tuple[int, int]:
    """(height, width) that boxes and masks refer to: of the image before `pack --short-side-px` made it smaller."""
    found = facts.get("source_size", size_px)
    if not (isinstance(found, list | tuple) and len(found) == 2 and all(type(each) is int for each in found)):
        raise Unusable("its size in the source is not known")
    return (found[0], found[1]) if min(found) > 0 else size_px


def nearest(mask: Int[np.ndarray, "h w"], size_px: tuple[int, int]) -> Int[np.ndarray, "g u"]:
    """The mask in another size; every value is the one that lay at the middle of its pixel."""
    rows, columns = (
        np.minimum(((np.arange(new) + 0.5) * old / new).astype(np.int64), old - 1)
        for new, old in zip(size_px, mask.shape, strict=True)
    )
    return mask[rows[:, None], columns[None]]


def _category(listed: Mapping[str, Any]) -> str:
    return str(listed["category"] if "category" in listed else listed["category_id"])


def _box(listed: Mapping[str, Any]) -> tuple[float, float, float, float]:
    left, top, width, height = listed["bbox"]
    return top, left, height, width


def read_mask(data: bytes, where: str) -> Int[np.ndarray, "h w"]:
    """The values of a grey or palette PNG as they are stored: a palette's index, not its colour."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            mode, values = image.mode, np.asarray(image)
    except DECODER_ERRORS as error:
        raise DataError(f"{where}: its mask does not decode: {one_line(error)}") from error
    if mode not in ("1", "L", "P", "I", "I;16"):
        raise DataError(f"{where}: its mask is {mode}; needed a grey PNG whose values are those of the objects")
    return values.astype(np.int64)


def shown_shares(annotation: Annotation, crops: Int[np.ndarray, "m 4"]) -> Float64[np.ndarray, "m k"]:
    """The share of each crop's area that each object takes. crops: (top, left, height, width) in whole px."""
    if annotation.mask is None:
        first = np.maximum(crops[:, None, :2], annotation.boxes[None, :, :2])  # m k 2
        ends = (crops[:, :2] + crops[:, 2:])[:, None], (annotation.boxes[:, :2] + annotation.boxes[:, 2:])[None]
        extent = np.maximum(np.minimum(*ends) - first, 0)
        return np.asarray(extent.prod(axis=2) / (crops[:, 2] * crops[:, 3])[:, None], dtype=np.float64)
    length = int(max(annotation.mask.max(), annotation.values.max())) + 1
    shares = np.empty((len(crops), len(annotation.values)))
    for place, (top, left, height, width) in enumerate(crops.tolist()):
        inside = annotation.mask[top : top + height, left : left + width]
        shares[place] = np.bincount(inside.ravel(), minlength=length)[annotation.values] / inside.size
    return shares


def common_content(
    annotation: Annotation | None, recipes: Float32[np.ndarray, "v p"], size_px: tuple[int, int]
) -> Float64[np.ndarray, " c"]:
    """How much of what the two views of every pair show is the same: over all countable objects, the sum of the smaller
    of the two shares of the views' areas.

    1: both show the same objects at the same sizes; 0: they share none. NaN for a pair with a view of the generated
    image, and for all pairs where there is no annotation or it lists nothing countable. size_px: of the original.
    """
    first, second = pair_index(len(recipes)).T
    if annotation is None or not annotation.is_thing.any():
        return np.full(len(first), np.nan)
    crops = pixel_boxes(recipes, np.tile(np.array(size_px), (len(recipes), 1)))
    shares = shown_shares(annotation, crops)[:, annotation.is_thing]  # v k
    of_original = recipes[:, SOURCE] == ORIGINAL
    common = np.minimum(shares[first], shares[second]).sum(axis=1)
    return np.where(of_original[first] & of_original[second], common, np.nan)


def shown_sets(annotation: Annotation, shown: Bool[np.ndarray, "m k"]) -> dict[str, Bool[np.ndarray, "m _"]]:
    """Which members of each of `SETS` every view shows."""
    things = shown & annotation.is_thing
    return {
        "things": things,
        "thing_categories": _by_category(annotation, things),
        "segments": shown,
        "categories": _by_category(annotation, shown),
    }


def _by_category(annotation: Annotation, shown: Bool[np.ndarray, "m k"]) -> Bool[np.ndarray, "m q"]:
    names = sorted(set(annotation.categories))
    of = np.array([[category == name for name in names] for category in annotation.categories])  # k q
    return np.asarray((shown[:, :, None] & of).any(axis=1))


def jaccard_distance(a: Bool[np.ndarray, "m k"], b: Bool[np.ndarray, "m k"]) -> Float64[np.ndarray, " m"]:
    """1 - shared / all members of two sets: 1 where they share none, NaN where both are empty."""
    union = (a | b).sum(axis=1)
    shared = (a & b).sum(axis=1)
    return np.where(union > 0, 1 - shared / np.maximum(union, 1), np.nan)
