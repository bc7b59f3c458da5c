"""Features of labelled images, for probes during and after a training."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.encoder import FeatureExtractor
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.labels import Labels, class_number
from viewkit.pipelines.pairs.samples import SampleReader
from viewkit.pipelines.views.recipe import centre_squares
from viewkit.shards.column import Column
from viewkit.shards.row import Row

PROBE_ROWS = 10_000
"""At most so many images take part in a probe, those with the smallest key hashes."""
BATCH = 256


def labelled_features(
    extractor: FeatureExtractor, images: Column, keys: Sequence[str], reader: SampleReader, attached: Labels
) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Features of centre squares of `PROBE_ROWS` of the images with these keys, all of which have a label, and their
    labels, on the CPU.

    attached: labels of images that have none of their own.
    Raises `DataError` for an image that does not decode, and for a label that is no number.
    """
    places = sorted(images.place_of[key] for key in smallest(keys, PROBE_ROWS))
    all_keys = images.keys()
    rows = (Row(all_keys[place], images.fields(place)) for place in places)
    features: list[Tensor] = []
    labels: list[int] = []
    for batch in batches(rows, BATCH):
        labels += [class_number(attached.of(row.key, row.fields), row.key, f"{images.path}") for row in batch]
        pixels = [reader(row).image.to(extractor.device) for row in batch]
        squares = centre_squares(pixels, extractor.side_px)
        features.append(extractor.features(extractor.render(pixels, squares, torch.arange(len(pixels)))).cpu())
    return torch.cat(features), torch.tensor(labels)
