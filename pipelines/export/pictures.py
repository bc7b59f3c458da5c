"""Pictures of stored pairs as data URLs, so that a table of them is one file that needs no other."""

import base64
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from viewkit.pipelines.export.projection import source_images
from viewkit.pipelines.export.table import ImageRow
from viewkit.pipelines.views.policy import Interpolation
from viewkit.pipelines.views.recipe import ORIGINAL, SOURCE
from viewkit.pipelines.views.render.render import render
from viewkit.shards.codecs import encode_jpeg

BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
GAP_PX = 2
QUALITY = 80


def pictures_of(image: ImageRow, side_px: int, interpolation: Interpolation = "bilinear") -> list[str | None]:
    """A picture for each of the image's records: both views side by side, as they are trained on but not normalised.

    interpolation: of the policy. None where a view was cropped from a generated image that is not there.
    """
    if image.recipes is None:
        return []
    views = _views(source_images(image), image.recipes, side_px, interpolation)
    found: list[str | None] = []
    for record in image.records:
        first, second = (views[record["round"]][record[f"view{number}"]] for number in (1, 2))
        found.append(None if first is None or second is None else data_url(side_by_side(first, second)))
    return found


def _views(
    images: Sequence[UInt8[Tensor, "_h _w 3"]],
    recipes: Float32[np.ndarray, "r v p"],
    side_px: int,
    interpolation: Interpolation,
) -> list[list[UInt8[np.ndarray, "s s 3"] | None]]:
    """Every view, round by round; None where its image is lacking."""
    flat = recipes.reshape(-1, recipes.shape[-1])
    index = (flat[:, SOURCE] > ORIGINAL).astype(np.int64)
    there = np.flatnonzero(index < len(images))
    pixels: dict[int, np.ndarray] = {}
    if there.size:
        place = torch.from_numpy(index[there])
        rendered = render(
            images, flat[there], place, side_px=side_px, mean=BLACK, std=WHITE, interpolation=interpolation
        )
        shown = (rendered.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
        pixels = dict(zip(there.tolist(), shown, strict=True))
    num_views = recipes.shape[1]
    return [[pixels.get(round_ * num_views + view) for view in range(num_views)] for round_ in range(len(recipes))]


def side_by_side(first: UInt8[np.ndarray, "s s 3"], second: UInt8[np.ndarray, "s s 3"]) -> UInt8[np.ndarray, "s w 3"]:
    """Both, with a white gap."""
    gap = np.full((len(first), GAP_PX, 3), 255, np.uint8)
    return np.ascontiguousarray(np.concatenate([first, gap, second], axis=1))


def data_url(pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    """A JPEG inside its own address."""
    return "data:image/jpeg;base64," + base64.b64encode(encode_jpeg(pixels, quality=QUALITY)).decode()
