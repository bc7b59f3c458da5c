"""What is measured of every pair, next to its indicators: colours, crops, features, classes and visible objects."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from viewkit.pipelines.encoders.encoder import UNIT_STD, ZERO_MEAN, FeatureExtractor
from viewkit.pipelines.engine.contract import Progress
from viewkit.pipelines.pairs.column import ScoredPairs
from viewkit.pipelines.pairs.objects import (
    SETS,
    Unusable,
    common_content,
    jaccard_distance,
    read_annotation,
    shown_sets,
    shown_shares,
)
from viewkit.pipelines.pairs.samples import load_image
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.colours import hellinger, lab_histograms
from viewkit.pipelines.views.policy import Interpolation
from viewkit.pipelines.views.recipe import BOX, pixel_boxes
from viewkit.pipelines.views.render.render import render
from viewkit.shards.column import Column
from viewkit.shards.errors import DataError

ROWS_AT_ONCE = 16
"""Images decoded at once; their views of one round are rendered together."""

Pairs = Float64[np.ndarray, "n r c"]


@dataclass(eq=False)
class Measures:
    """Every array is [n r c]; NaN where a number does not exist.

    colour: eq. 22 of colour histograms. iou: of the crops, of pairs from one image. features: cosine of the encoder's
    backbone features. classes: eq. 22 of class probabilities, None without a classifier. objects: name of `SETS` ->
    Jaccard distance of what both views show, of pairs from annotated originals. common: their `common_content`.
    annotated: images with usable annotations. unusable: reason -> images.
    """

    colour: Pairs
    iou: Pairs
    features: Pairs
    classes: Pairs | None
    objects: dict[str, Pairs]
    common: Pairs
    annotated: int = 0
    unusable: Counter[str] = field(default_factory=Counter)


def measure_pairs(
    sample: ScoredPairs,
    images: Column,
    generated: Column | None,
    *,
    encoder: FeatureExtractor,
    classifier: FeatureExtractor | None,
    side_px: int,
    visible_share: float,
    device: str,
    progress: Progress,
    interpolation: Interpolation = "bilinear",
) -> Measures:
    """Measure every pair of the sample, `ROWS_AT_ONCE` images and one round of their views at a time.

    interpolation: how the policy resizes views, whose colours are compared; encoders get theirs as they take them.
    """
    n, num_rounds, num_pairs = sample.scores.shape[:3]
    empty = np.full((n, num_rounds, num_pairs), np.nan)
    found = Measures(
        empty.copy(),
        np.where(sample.of_one_image, crop_overlaps(sample), np.nan),
        empty.copy(),
        None if classifier is None else empty.copy(),
        {name: empty.copy() for name in SETS},
        empty.copy(),
    )
    first, second = sample.views.T
    for start in range(0, n, ROWS_AT_ONCE):
        rows = slice(start, min(start + ROWS_AT_ONCE, n))
        keys = sample.keys[rows]
        fields = [images.fields(images.place_of[key]) for key in keys]
        pixels = [load_image(each, device) for each in fields]
        source = sample.source[rows]
        pixels += list(load_generated(generated, keys, pixels, source, device))
        for round_ in range(num_rounds):
            recipes = sample.recipes[rows, round_]
            n_rows, num_views, _ = recipes.shape
            index = (np.arange(n_rows)[:, None] + n_rows * source[:, round_]).reshape(-1)
            flat = recipes.reshape(n_rows * num_views, -1)

            def pairwise(values: np.ndarray, shape: tuple[int, int] = (n_rows, num_views)) -> tuple[np.ndarray, ...]:
                of = values.reshape(*shape, -1)
                return of[:, first], of[:, second]

            plain = render(
                pixels, flat, index, side_px=side_px, mean=ZERO_MEAN, std=UNIT_STD, interpolation=interpolation
            )
            histograms = lab_histograms(plain.clamp(0, 1).permute(0, 2, 3, 1).cpu().numpy())
            found.colour[rows, round_] = hellinger(*pairwise(histograms))
            found.features[rows, round_] = cosine(*pairwise(features_of(encoder, pixels, flat, index)))
            if classifier is not None and found.classes is not None:
                found.classes[rows, round_] = hellinger(*pairwise(features_of(classifier, pixels, flat, index)))
        for row, key, each, image in zip(range(rows.start, rows.stop), keys, fields, pixels, strict=False):
            _compare_objects(found, sample, row, key, each, image, visible_share)
        progress.advance(len(keys))
    return found


def features_of(
    network: FeatureExtractor,
    images: Sequence[Tensor],
    recipes: Float32[np.ndarray, "m p"],
    index: Int64[np.ndarray, " m"],
) -> Float32[np.ndarray, "m d"]:
    """Features of the views of these recipes, rendered as the network takes them."""
    found: np.ndarray = network.features(network.render(images, recipes, index)).cpu().numpy()
    return found


def _compare_objects(
    found: Measures,
    sample: ScoredPairs,
    row: int,
    key: str,
    fields: Mapping[str, bytes],
    image: Tensor,
    visible_share: float,
) -> None:
    """Fill in the Jaccard distances and common content of one row, or count why it has none."""
    size = int(image.shape[0]), int(image.shape[1])
    try:
        annotation = read_annotation(fields, size, f"column 'images', row {key}")
    except Unusable as reason:
        found.unusable[str(reason)] += 1
        return
    found.annotated += 1
    first, second = sample.views.T
    for round_, recipes in enumerate(sample.recipes[row]):
        crops = pixel_boxes(recipes, np.tile(np.array(size), (len(recipes), 1)))
        sets = shown_sets(annotation, shown_shares(annotation, crops) >= visible_share)
        known = sample.of_originals[row, round_]
        found.common[row, round_] = common_content(annotation, recipes, size)
        for name, shown in sets.items():
            distance = jaccard_distance(shown[first], shown[second])
            found.objects[name][row, round_] = np.where(known, distance, np.nan)


def load_generated(
    generated: Column | None,
    keys: Sequence[str],
    originals: Sequence[Tensor],
    source: Int64[np.ndarray, "n r v"],
    device: str,
) -> Iterator[Tensor]:
    """The generated image of every row that has views of one; the original, as a stand-in, of the others."""
    for key, original, kinds in zip(keys, originals, source, strict=True):
        if not kinds.any():
            yield original
        elif generated is None or key not in generated.place_of:
            raise DataError(f"audit: row {key} has views of a generated image, and its column has none of it")
        else:
            yield load_image(generated.fields(generated.place_of[key]), device)


def crop_overlaps(sample: ScoredPairs) -> Pairs:
    """Intersection over union of the crops, in fractions of the image."""
    boxes = sample.recipes[..., BOX].astype(np.float64)
    first, second = sample.views.T
    return overlap(boxes[:, :, first], boxes[:, :, second])


def cosine(a: Float32[np.ndarray, "*n d"], b: Float32[np.ndarray, "*n d"]) -> Float64[np.ndarray, "*n"]:
    """Cosine along the last axis, in double precision."""
    x, y = torch.from_numpy(a).double(), torch.from_numpy(b).double()
    return torch.nn.functional.cosine_similarity(x, y, dim=-1).numpy()
