"""Pixels of the page: the views exactly as `render` makes them (lossless), and small copies of the images (JPEG)."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from PIL import Image

from viewkit.pipelines.browse.candidates import Groups
from viewkit.pipelines.engine.contract import Progress
from viewkit.pipelines.views.colours import hellinger, lab_histograms
from viewkit.pipelines.views.policy import Interpolation
from viewkit.pipelines.views.recipe import GENERATED, ORIGINAL
from viewkit.pipelines.views.render.render import render
from viewkit.shards.codecs import decode_image, encode_jpeg
from viewkit.shards.column import Column
from viewkit.shards.errors import DataError

BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
QUALITY = 85
"""Of the small JPEGs."""


@dataclass(eq=False)
class Pictures:
    """images: key -> data URIs of the image and of its generated view, "" where there is none. views: data URIs of all
    views of the first groups. colour: eq. 22 of the colour histograms of every pair of these."""

    images: dict[str, tuple[str, str]] = field(default_factory=dict)
    views: list[list[str]] = field(default_factory=list)
    colour: list[Float32[np.ndarray, " c"]] = field(default_factory=list)
    num_bytes: int = 0


def make_pictures(
    groups: Groups,
    columns: Mapping[int, Column],
    *,
    most: int,
    num_bytes: int,
    side_px: int,
    thumb_px: int,
    interpolation: Interpolation,
    progress: Progress,
) -> Pictures:
    """Pictures of the first `most` groups, or of fewer where these would take more than `num_bytes` in the page.

    columns: `ORIGINAL` -> images, `GENERATED` -> generated views, where they are. `DataError` for a view that was
    cropped from a generated image that is not there.
    """
    found = Pictures()
    first, second = groups.views.T
    for group in range(most):
        key, recipes = groups.keys[group], groups.recipes[group]
        sources = {kind: decode_image(column.fields(place)) for kind, column in columns.items()
                   if (place := column.place_of.get(key)) is not None}  # fmt: skip
        if ORIGINAL not in sources or (GENERATED not in sources and groups.source[group].any()):
            lacking = "generated view" if ORIGINAL in sources else "image"
            raise DataError(f"browse: row {key} has views of a {lacking} that is not there; rerun 'viewkit status'")
        views = render_views(sources, groups.source[group].tolist(), recipes, side_px, interpolation)
        uris = [lossless_uri(view) for view in views]
        thumbs = tuple(thumb_uri(sources[kind], thumb_px) if kind in sources else "" for kind in (ORIGINAL, GENERATED))
        size = sum(map(len, uris)) + (0 if key in found.images else sum(map(len, thumbs)))
        if found.num_bytes + size > num_bytes:
            break
        found.num_bytes += size
        found.images[key] = (thumbs[0], thumbs[1])
        found.views.append(uris)
        histograms = lab_histograms(views / np.float32(255))
        found.colour.append(hellinger(histograms[first], histograms[second]).astype(np.float32))
        progress.advance(1)
    return found


def render_views(
    sources: Mapping[int, UInt8[np.ndarray, "_h _w 3"]],
    kinds: Sequence[int],
    recipes: Float32[np.ndarray, "v p"],
    side_px: int,
    interpolation: Interpolation,
) -> UInt8[np.ndarray, "v side side 3"]:
    """The views as they are trained on, before the normalisation: 0-255."""
    order = sorted(sources)
    tensors = [torch.from_numpy(np.ascontiguousarray(sources[kind])) for kind in order]
    index = np.array([order.index(kind) for kind in kinds])
    views = render(tensors, recipes, index, side_px=side_px, mean=BLACK, std=WHITE, interpolation=interpolation)
    return (views.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()


def lossless_uri(pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="WEBP", lossless=True, quality=60, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def thumb_uri(pixels: UInt8[np.ndarray, "h w 3"], side_px: int) -> str:
    """A small copy whose longer side is `side_px` at most."""
    image = Image.fromarray(pixels)
    image.thumbnail((side_px, side_px), Image.Resampling.BICUBIC)
    return "data:image/jpeg;base64," + base64.b64encode(encode_jpeg(np.asarray(image), quality=QUALITY)).decode()
