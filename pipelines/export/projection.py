"""Places of pairs in the plane: the first two principal components of what the estimator makes of their views."""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor
from torch.nn.functional import normalize

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.export.table import ImageRow
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.recipe import ORIGINAL, SOURCE
from viewkit.shards.codecs import decode_image
from viewkit.shards.errors import DataError
from viewkit.shards.view_fields import views_of_fields

AXES = ("pca1", "pca2")
FITTED_ON = 512
"""Images whose pairs the components are fitted to: those that the export begins with."""


def source_images(image: ImageRow) -> list[Tensor]:
    """The original and, where a view is cropped from it and it is there, the generated image, uint8 [h w 3]."""
    pictures = [decode_image(image.fields)]
    if image.recipes is not None and (image.recipes[..., SOURCE] > ORIGINAL).any() and image.generated is not None:
        fields = {name: content for name, content in image.generated.items() if name != "json"}
        pictures.append(decode_image(views_of_fields(fields)[0]))
    return [torch.from_numpy(np.ascontiguousarray(picture)) for picture in pictures]


def pair_features(encoder: Encoder, image: ImageRow) -> Float64[np.ndarray, "r c d"]:
    """Mean of both views' features, each of unit norm; NaN where a view's image is lacking."""
    assert image.recipes is not None
    rounds, num_views, _ = image.recipes.shape
    flat = image.recipes.reshape(rounds * num_views, -1)
    images, index = source_images(image), (flat[:, SOURCE] > ORIGINAL).astype(np.int64)
    there = np.flatnonzero(index < len(images))
    views = encoder.render(images, flat[there], torch.from_numpy(index[there]))
    found = normalize(encoder.features(views).double(), dim=1).cpu().numpy()
    every = np.full((len(flat), found.shape[1]), np.nan)
    every[there] = found
    first, second = pair_index(num_views).T
    features = every.reshape(rounds, num_views, -1)
    return (features[:, first] + features[:, second]) / 2


class Projection:
    """Two principal components, fitted once to the pairs of some images."""

    def __init__(self, encoder: Encoder, images: Iterable[ImageRow]) -> None:
        from sklearn.decomposition import PCA

        self.encoder = encoder
        rows = [pair_features(encoder, image).reshape(-1, encoder.width) for image in images if image.records]
        known = np.concatenate(rows) if rows else np.empty((0, encoder.width))
        known = known[~np.isnan(known).any(axis=1)]
        if len(known) < 3:
            raise DataError(
                f"export: pca1 and pca2 need at least 3 pairs, and there are {len(known)}; leave --x and --y out"
            )
        self.components = PCA(2, svd_solver="full").fit(known)

    def places(self, image: ImageRow) -> list[dict[str, float | None]]:
        """`AXES` of every record of the image, in order."""
        features = pair_features(self.encoder, image).reshape(-1, self.encoder.width)
        known = ~np.isnan(features).any(axis=1)
        found = np.full((len(features), 2), np.nan)
        if known.any():
            found[known] = self.components.transform(features[known])
        return [
            dict.fromkeys(AXES) if np.isnan(place).any() else dict(zip(AXES, place.round(5).tolist(), strict=True))
            for place in found
        ]
