"""ContrastiveCrop's boxes: where in an image the centres of its crops lie (Peng et al. 2022, sec. 3.2)."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.views.boxes import foreground_boxes
from viewkit.pipelines.views.recipe import neutral_recipes
from viewkit.shards.errors import DataError

BATCH = 64


class CropBoxes:
    """Boxes of images by the heat maps of a frozen encoder: its last map summed over channels, from the whole image
    squeezed into a square. An image is encoded once, when it first comes; its box (32 bytes) is kept.

    threshold: share of the heat map's range above which a row or column is in the box.
    """

    def __init__(self, encoder: Encoder, threshold: float) -> None:
        self.encoder, self.threshold = encoder, threshold
        self._kept: dict[str, Float64[np.ndarray, " 4"]] = {}

    def __call__(self, samples: Sequence[Sample]) -> Float64[np.ndarray, "n 4"]:
        """(top, left, height, width) in fractions of every image. `DataError` for a map that is not finite."""
        for part in batches([sample for sample in samples if sample.key not in self._kept], BATCH):
            recipes = neutral_recipes(len(part), self.encoder.side_px)
            images = [sample.image.to(self.encoder.device) for sample in part]
            views = self.encoder.render(images, recipes, torch.arange(len(part)))
            maps = self.encoder.maps(views).sum(dim=3).double().cpu().numpy()
            if not np.isfinite(maps).all():
                raise DataError(f"crop_box: the maps of encoder '{self.encoder.name}' are not finite; take another")
            for sample, box in zip(part, foreground_boxes(maps, self.threshold), strict=True):
                self._kept[sample.key] = box
        return np.stack([self._kept[sample.key] for sample in samples])
