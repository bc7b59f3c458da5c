"""The stored views of rows: from bytes to an encoder's tokens, every view rendered and encoded once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.engine.rejects import decode_or_reject, reject
from viewkit.pipelines.pairs.generated import generated_column
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.views.recipe import centre_squares, check_recipes, column
from viewkit.shards.codecs import decode_npy
from viewkit.shards.column import Column
from viewkit.shards.commands import command_for
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.row import Reject

IMAGES = "images"

CPU_VIEWS, GPU_VIEWS = 32, 256
"""Views of one forward pass, always filled up. Fixed: kernels for another batch size differ in the last bits."""

Fields = Mapping[str, bytes]


def genview_of(dataset: Dataset, pairs: str = PAIRS) -> str | None:
    """The column of generated images that some of the stored views are cropped from; None where none is."""
    return generated_column(dataset.column(pairs).identity.inputs)


def generated_input(dataset: Dataset, stage: str, pairs: str = PAIRS) -> dict[str, str]:
    """Digest of the generated images, where the stored views need them: `Stage.reads` cannot know from a config."""
    name = genview_of(dataset, pairs)
    return {} if name is None else {name: dataset.input_digest(name, for_stage=stage)}


@dataclass(frozen=True)
class RowViews:
    """images: the original and, where a view needs it, the generated one, uint8 [h w 3]; index: which of them."""

    key: str
    images: tuple[Tensor, ...]
    recipes: Float32[np.ndarray, "r v p"]
    index: Int64[np.ndarray, "r v"]


def stored_recipes(key: str, pairs: Fields, of: Column | None = None) -> Float32[np.ndarray, "r v p"]:
    """Recipes of a row of the column of pairs `of`, for messages. `DataError` for what is no row of pairs."""
    where = f"row {key} of the pairs" if of is None else f"column '{of.name}': row {key}"
    step = "delete the column and rerun " + (
        "the command that wrote it" if of is None else f"'{command_for(of.name, of.identity.stage)}'"
    )
    if "recipes.npy" not in pairs:
        raise DataError(f"{where} lacks 'recipes.npy'; {step}")
    recipes = decode_npy(pairs["recipes.npy"])
    check_recipes(recipes, where)
    if recipes.ndim != 3 or recipes.shape[1] < 2:
        raise DataError(
            f"{where} has recipes of shape {list(recipes.shape)}, needed [r, v, p] with two views or more; {step}"
        )
    return recipes


def read_views(
    key: str, recipes: Float32[np.ndarray, "r v p"], image: Fields, generated: Fields | None, device: str
) -> RowViews | Reject:
    """The row's images on the device, or why its views cannot be rendered."""
    index = (recipes[:, :, column("source")] > 0).astype(np.int64)
    if index.any() and generated is None:
        return reject(
            key, "no_generated_view", "a view is cropped from the generated image, of which its column has none"
        )
    images = []
    for fields in [image, generated] if index.any() else [image]:
        assert fields is not None
        pixels = decode_or_reject(key, fields)
        if isinstance(pixels, Reject):
            return pixels
        images.append(torch.from_numpy(pixels).to(device))
    return RowViews(key, tuple(images), recipes, index)


def centre_square(row: RowViews, side_px: int) -> RowViews:
    """The same row with one view: the largest centred square of its original image."""
    recipes = centre_squares(row.images[:1], side_px)
    return replace(row, images=row.images[:1], recipes=recipes[None], index=np.zeros((1, 1), dtype=np.int64))


def views_per_pass(encoder: Encoder) -> int:
    """Views of one forward pass on the encoder's device: as many as stay in a CPU's cache, or keep a GPU busy."""
    return CPU_VIEWS if torch.device(encoder.device).type == "cpu" else GPU_VIEWS


def render_rows(encoder: Encoder, rows: Sequence[RowViews]) -> Iterator[Float32[Tensor, "m 3 s s"]]:
    """All views of the rows, in order (row, round, view), `views_per_pass` at a time."""
    images = [image for row in rows for image in row.images]
    firsts = np.cumsum([0, *(len(row.images) for row in rows)])[:-1]
    recipes = np.concatenate([row.recipes.reshape(-1, row.recipes.shape[-1]) for row in rows])
    index = np.concatenate([first + row.index.reshape(-1) for first, row in zip(firsts, rows, strict=True)])
    size = views_per_pass(encoder)
    for start in range(0, len(recipes), size):
        part = slice(start, start + size)
        yield encoder.render(images, recipes[part], index[part])


def encode_views(encoder: Encoder, views: Float32[Tensor, "m 3 s s"]) -> Float32[Tensor, "m h w k"]:
    """Maps of at most `views_per_pass` views, in one forward pass of that many."""
    padding = views.new_zeros(views_per_pass(encoder) - len(views), *views.shape[1:])
    return encoder.maps(torch.cat([views, padding]))[: len(views)]


def encode_rows(encoder: Encoder, rows: Sequence[RowViews]) -> Iterator[Float32[Tensor, "m h w k"]]:
    """Maps of all views of the rows, in the order and parts of `render_rows`."""
    return (encode_views(encoder, views) for views in render_rows(encoder, rows))
