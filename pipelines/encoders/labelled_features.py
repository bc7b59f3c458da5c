"""Features of labelled images, for probes during and after a training."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.encoder import FeatureExtractor
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.labels import Labels
from viewkit.pipelines.pairs.samples import SampleReader
from viewkit.pipelines.views.recipe import centre_squares
from viewkit.shards.column import Column
from viewkit.shards.row import Row

PROBE_ROWS = 10_000
"""At most so many images take part in a probe, those with the smallest key hashes."""
BATCH = 256


def labelled_features(
    extractor: FeatureExtractor, images: Column, reader: SampleReader, attached: Labels | None = None
) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]] | None:
    """Features of centre squares with their labels, on the CPU; None when an image has no label.

    attached: labels of images that have none of their own.
    Raises `DataError` for an image that does not decode.
    """
    keys = images.keys()
    chosen = set(smallest(keys, PROBE_ROWS))
    rows = (Row(key, images.fields(index)) for index, key in enumerate(keys) if key in chosen)
    attached = attached or Labels()
    features: list[Tensor] = []
    labels: list[int] = []
    for batch in batches(rows, BATCH):
        found = [attached.of(row.key, row.fields) for row in batch]
        known = [int(label) for label in found if label is not None]
        if len(known) < len(batch):
            return None
        labels += known
        pixels = [reader(row).image.to(extractor.device) for row in batch]
        squares = centre_squares(pixels, extractor.side_px)
        features.append(extractor.features(extractor.render(pixels, squares, torch.arange(len(pixels)))).cpu())
    return (torch.cat(features), torch.tensor(labels)) if features else None
