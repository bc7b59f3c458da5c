"""Features of images: by frozen encoders and, as a baseline, their own pixels. Every image is decoded once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from viewkit.pipelines.training.features import centre_squares
from viewkit.pipelines.training.samples import Sample
from viewkit.pipelines.views.render import render

RESIZE = "the centre square, resized as views are (antialiased bilinear)"
BATCH = 256
Pixels = tuple[float, float, float]
BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class FrozenEncoder:
    """module: normalised images [n 3 side side] -> features [n d]; in eval mode, on its device."""

    module: nn.Module
    side_px: int
    mean: Pixels
    std: Pixels


def extract_features(
    samples: Iterable[Sample],
    encoders: Mapping[str, FrozenEncoder],
    *,
    pixels_px: int | None,
    device: str,
    advance: Callable[[int], None] = lambda count: None,
) -> dict[str, Float[Tensor, "n d"]]:
    """Encoder name -> features in fp32 on the CPU; also ``pixels`` (0 ... 1, flattened) unless `pixels_px` is None."""
    parts: dict[str, list[Tensor]] = {name: [] for name in [*encoders, *(["pixels"] if pixels_px else [])]}
    source = iter(samples)
    while batch := list(islice(source, BATCH)):
        images = [sample.image.to(device) for sample in batch]
        squares: dict[tuple[int, Pixels, Pixels], Float[Tensor, "n 3 s s"]] = {}
        for name, encoder in encoders.items():
            looks = (encoder.side_px, encoder.mean, encoder.std)
            if looks not in squares:
                squares[looks] = render_squares(batch, images, *looks)
            parts[name].append(embed(encoder.module, squares[looks]))
        if pixels_px:
            parts["pixels"].append(render_squares(batch, images, pixels_px, BLACK, WHITE).flatten(1).cpu())
        advance(len(batch))
    return {name: torch.cat(part) for name, part in parts.items()}


def render_squares(
    samples: Sequence[Sample], images: Sequence[UInt8[Tensor, "_h _w 3"]], side_px: int, mean: Pixels, std: Pixels
) -> Float[Tensor, "n 3 side side"]:
    """Centre squares of the samples' images, which lie on the device as `images`; normalised."""
    recipes = centre_squares(samples, side_px)
    return render(images, recipes, torch.arange(len(images)), side_px=side_px, mean=mean, std=std)


@torch.inference_mode()
def embed(module: nn.Module, views: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
    """Features in fp32, on the CPU."""
    features: Tensor = module(views)
    return features.float().cpu()
