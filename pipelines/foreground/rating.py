"""GenView's quality of the pairs of rows' views: every view rendered and encoded once (sec. 3.4)."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.stored_views import RowViews, encode_rows
from viewkit.pipelines.foreground.pair_quality import pair_quality, soft_masks, split_features


def rate_views(
    rows: Sequence[RowViews], encoder: Encoder, direction: Float64[Tensor, " k"]
) -> list[Float32[np.ndarray, "r c"]]:
    """q of every pair of every round of the rows; every view is encoded once, not once per pair."""
    if not rows:
        return []
    parts = [split_features(maps, soft_masks(maps, direction)) for maps in encode_rows(encoder, rows)]
    features = torch.cat(parts).split([row.index.size for row in rows])  # (r v) 2 k each
    return [
        pair_quality(own.unflatten(0, row.index.shape)).float().cpu().numpy()
        for row, own in zip(rows, features, strict=True)
    ]
