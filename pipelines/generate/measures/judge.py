"""Pictures as a judge sees them: features from full batches, of each picture as it is and mirrored."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, UInt8

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.engine.batches import batches, padded
from viewkit.pipelines.generate.measures.table import Judged, mean_colour

Picture = UInt8[np.ndarray, "_ _ 3"]
BATCH = 32


def embed(encoder: Encoder, pictures: Sequence[Picture], batch_size: int = BATCH) -> Float64[np.ndarray, "n d"]:
    """Features of the pictures; a batch is always full, so that none depends on how many there are."""
    parts = batches(padded(pictures, batch_size), batch_size)
    found = [encoder.encode_images(part)[1].double().cpu().numpy() for part in parts]
    return np.concatenate(found)[: len(pictures)]


def judged(encoder: Encoder, pictures: Sequence[Picture], batch_size: int = BATCH) -> Judged:
    mirrored = [np.ascontiguousarray(picture[:, ::-1]) for picture in pictures]
    features = embed(encoder, pictures, batch_size)
    return Judged(features, embed(encoder, mirrored, batch_size), mean_colour(pictures))


def joined(parts: Sequence[Judged]) -> Judged:
    return Judged(*(np.concatenate(values) for values in zip(*parts, strict=True)))
