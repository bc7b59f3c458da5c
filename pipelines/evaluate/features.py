"""Features of images: by encoders and, as a baseline, their own pixels. Every image is decoded once."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from viewkit.pipelines.encoders.encoder import UNIT_STD, ZERO_MEAN, FeatureExtractor
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.views.policy import Colour
from viewkit.pipelines.views.recipe import centre_squares
from viewkit.pipelines.views.render.render import render
from viewkit.shards.spans import spanned

RESIZE = "the centre square, resized as views are (antialiased bilinear)"
BATCH = 256


@spanned("features")
def extract_features(
    samples: Iterable[Sample],
    encoders: Mapping[str, FeatureExtractor],
    *,
    pixels_px: int | None,
    device: str,
    advance: Callable[[int], None] = lambda count: None,
) -> dict[str, Float[Tensor, "n d"]]:
    """Encoder name -> features in fp32 on the CPU; also ``pixels`` (0 ... 1, flattened) unless `pixels_px` is None."""
    parts: dict[str, list[Tensor]] = {name: [] for name in [*encoders, *(["pixels"] if pixels_px else [])]}
    for batch in batches(samples, BATCH):
        images = [sample.image.to(device) for sample in batch]
        squares: dict[tuple[int, Colour, Colour], Float[Tensor, "n 3 s s"]] = {}
        for name, encoder in encoders.items():
            prepared_as = (encoder.side_px, encoder.mean, encoder.std)
            if prepared_as not in squares:
                squares[prepared_as] = render_squares(images, *prepared_as)
            parts[name].append(encoder.features(squares[prepared_as]).cpu())
        if pixels_px:
            parts["pixels"].append(render_squares(images, pixels_px, ZERO_MEAN, UNIT_STD).flatten(1).cpu())
        advance(len(batch))
    return {name: torch.cat(part) for name, part in parts.items()}


def render_squares(
    images: Sequence[UInt8[Tensor, "_h _w 3"]], side_px: int, mean: Colour, std: Colour
) -> Float[Tensor, "n 3 side side"]:
    """Centre squares of images on the device; normalised."""
    recipes = centre_squares(images, side_px)
    return render(images, recipes, torch.arange(len(images)), side_px=side_px, mean=mean, std=std)
