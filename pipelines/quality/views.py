"""The stored views of rows: from bytes to feature maps, every view rendered and embedded once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from viewkit.pipelines.quality.encoders import MapEncoder
from viewkit.pipelines.training.features import centre_squares
from viewkit.pipelines.training.samples import Sample
from viewkit.pipelines.views.recipe import check_recipes, column
from viewkit.pipelines.views.render import render
from viewkit.shards.codecs import decode_image, decode_npy
from viewkit.shards.errors import DataError
from viewkit.shards.row import Reject

CPU_VIEWS, GPU_VIEWS = 32, 256
"""Views of one forward pass, always filled up. Fixed: kernels for another batch size differ in the last bits."""

Fields = Mapping[str, bytes]


@dataclass(frozen=True)
class RowViews:
    """images: the original and, where a view needs it, the generated one, uint8 [h w 3]; index: which of them."""

    key: str
    images: tuple[Tensor, ...]
    recipes: Float32[np.ndarray, "r v p"]
    index: Int64[np.ndarray, "r v"]


def stored_recipes(key: str, pairs: Fields) -> Float32[np.ndarray, "r v p"]:
    """Recipes of a row of the column of pairs. `DataError` for what `score` has not written."""
    where = f"column 'pairs': row {key}"
    if "recipes.npy" not in pairs:
        raise DataError(f"{where} lacks 'recipes.npy'; delete the column and rerun 'viewkit score'")
    recipes = decode_npy(pairs["recipes.npy"])
    check_recipes(recipes, where)
    if recipes.ndim != 3 or recipes.shape[1] < 2:
        raise DataError(
            f"{where} has recipes of shape {list(recipes.shape)}, needed [r, v, p] with two views or more; delete the "
            "column and rerun 'viewkit score'"
        )
    return recipes


def read_views(
    key: str, recipes: Float32[np.ndarray, "r v p"], image: Fields, generated: Fields | None, device: str
) -> RowViews | Reject:
    """The row's images on the device, or why its views cannot be looked at."""
    index = (recipes[:, :, column("source")] > 0).astype(np.int64)
    if index.any() and generated is None:
        return Reject(key, "no_generated_view", "a view is cut from a generated image, and 'genview' rejected this row")
    needed = [image, generated] if index.any() else [image]
    try:
        images = tuple(torch.from_numpy(decode_image(fields)).to(device) for fields in needed if fields is not None)
    except DataError as error:
        return Reject(key, "undecodable_image", str(error))
    return RowViews(key, images, recipes, index)


def centre_square(row: RowViews, side_px: int) -> RowViews:
    """The same row with one view: the largest centred square of its original image."""
    recipes = centre_squares([Sample(row.key, row.images[0])], side_px)
    return replace(row, images=row.images[:1], recipes=recipes[None], index=np.zeros((1, 1), dtype=np.int64))


def views_at_once(encoder: MapEncoder) -> int:
    """Views of one forward pass on the encoder's device: as many as stay in a CPU's cache, or keep a GPU busy."""
    return CPU_VIEWS if torch.device(encoder.device).type == "cpu" else GPU_VIEWS


def views_of(encoder: MapEncoder, rows: Sequence[RowViews]) -> Iterator[Float32[Tensor, "m 3 s s"]]:
    """All views of the rows as the encoder takes them, in order (row, round, view), `views_at_once` at a time."""
    images = [image for row in rows for image in row.images]
    firsts = np.cumsum([0, *(len(row.images) for row in rows)])[:-1]
    recipes = np.concatenate([row.recipes.reshape(-1, row.recipes.shape[-1]) for row in rows])
    index = np.concatenate([first + row.index.reshape(-1) for first, row in zip(firsts, rows, strict=True)])
    at_once = views_at_once(encoder)
    for start in range(0, len(recipes), at_once):
        part = slice(start, start + at_once)
        yield render(images, recipes[part], index[part], side_px=encoder.side_px, mean=encoder.mean, std=encoder.std)


def encode_views(encoder: MapEncoder, views: Float32[Tensor, "m 3 s s"]) -> Float32[Tensor, "m h w k"]:
    """Feature maps of at most `views_at_once` views, in one forward pass of that many."""
    padding = views.new_zeros(views_at_once(encoder) - len(views), *views.shape[1:])
    return encoder.maps(torch.cat([views, padding]))[: len(views)]


def maps_of(encoder: MapEncoder, rows: Sequence[RowViews]) -> Iterator[Float32[Tensor, "m h w k"]]:
    """Feature maps of `views_of`, piece by piece."""
    return (encode_views(encoder, views) for views in views_of(encoder, rows))
