"""Pictures of stored pairs as data URLs, so that a table of them is one file that needs no other."""

import base64
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32, UInt8

from viewkit.pipelines.export.table import ImageRow
from viewkit.pipelines.views.recipe import ORIGINAL, SOURCE
from viewkit.pipelines.views.render.render import render
from viewkit.shards.codecs import decode_image, encode_jpeg
from viewkit.shards.view_fields import views_of_fields

BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
GAP_PX = 2
QUALITY = 80


def pictures_of(image: ImageRow, side_px: int) -> list[str | None]:
    """A picture for each of the image's records: both views side by side, as they are trained on but not normalised.

    None where a view was cropped from a generated image that is not there.
    """
    if image.recipes is None:
        return []
    originals = [decode_image(image.fields)]
    if (image.recipes[..., SOURCE] > ORIGINAL).any() and image.generated is not None:
        fields = {name: content for name, content in image.generated.items() if name != "json"}
        originals.append(decode_image(views_of_fields(fields)[0]))
    views = _views(originals, image.recipes, side_px)
    found: list[str | None] = []
    for record in image.records:
        first, second = (views[record["round"]][record[f"view{number}"]] for number in (1, 2))
        found.append(None if first is None or second is None else data_url(side_by_side(first, second)))
    return found


def _views(
    images: Sequence[UInt8[np.ndarray, "_h _w 3"]], recipes: Float32[np.ndarray, "r v p"], side_px: int
) -> list[list[UInt8[np.ndarray, "s s 3"] | None]]:
    """Every view, round by round; None where its image is lacking."""
    flat = recipes.reshape(-1, recipes.shape[-1])
    index = (flat[:, SOURCE] > ORIGINAL).astype(np.int64)
    there = np.flatnonzero(index < len(images))
    pixels: dict[int, np.ndarray] = {}
    if there.size:
        tensors = [torch.from_numpy(np.ascontiguousarray(image)) for image in images]
        rendered = render(tensors, flat[there], torch.from_numpy(index[there]), side_px=side_px, mean=BLACK, std=WHITE)
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
