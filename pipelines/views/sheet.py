"""A contact sheet: some images and the views that a policy gives of them."""

import numpy as np
import torch
from jaxtyping import UInt8

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import column
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.views.sample import Pipelines, sample_recipes, sizes_px
from viewkit.shards.errors import ConfigError

GAP = 4
"""White pixels between the pictures; twice that after the original."""


def contact_sheet(
    images: list[np.ndarray],
    keys: list[str],
    policy: Policy,
    *,
    num_views: int = 8,
    tile_px: int = 128,
    seed: int = 0,
    stage: str = "views",
    round: int = 0,
    pipelines: Pipelines = "alternate",
) -> UInt8[np.ndarray, "h w 3"]:
    """One line an image: the original, then its views, all `tile_px` high and wide; RGB.

    images: uint8 [h w 3] of any sizes; keys: their keys, from which the recipes are sampled. The original is shrunk
    to fit the tile. Views are rendered at `tile_px` whatever side their specification has.
    """
    if len(images) != len(keys):
        raise ConfigError(f"contact sheet: {len(images)} images and {len(keys)} keys; needed as many of each")
    if not images or num_views < 1 or tile_px < 1:
        raise ConfigError(
            f"contact sheet: {len(images)} images, num_views {num_views}, tile_px {tile_px}; needed at least 1 of each"
        )
    recipes = sample_recipes(
        policy,
        row_ids(keys),
        sizes_px(images),
        seed=seed,
        stage=stage,
        round=round,
        num_views=num_views,
        pipelines=pipelines,
    )
    tensors = [torch.from_numpy(np.ascontiguousarray(image)) for image in images]
    views = render(
        tensors,
        recipes.reshape(-1, recipes.shape[-1]),
        np.repeat(np.arange(len(images)), num_views),
        side_px=tile_px,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        interpolation=policy.interpolation,
    )
    pixels = (views * 255 + 0.5).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    step = tile_px + GAP
    sheet = np.full((len(images) * step + GAP, (num_views + 1) * step + 2 * GAP, 3), 255, dtype=np.uint8)
    for line, image in enumerate(tensors):
        top = GAP + line * step
        small = _fitted(image, tile_px)
        sheet[top : top + small.shape[0], GAP : GAP + small.shape[1]] = small
        for place in range(num_views):
            left = 2 * GAP + (place + 1) * step
            sheet[top : top + tile_px, left : left + tile_px] = pixels[line * num_views + place]
    return sheet


def describe(recipe: np.ndarray) -> str:
    """One recipe in a line, e.g. for the caption of a view: only what changes the picture."""
    parts = [f"crop {recipe[column('height')]:.2f} x {recipe[column('width')]:.2f}"]
    if recipe[column("flip")]:
        parts.append("flip")
    for name, neutral in (("brightness", 1), ("contrast", 1), ("saturation", 1), ("hue", 0)):
        if recipe[column(name)] != neutral:
            parts.append(f"{name} {recipe[column(name)]:.2f}")
    if recipe[column("grey")]:
        parts.append("grey")
    if recipe[column("sigma")] > 0:
        parts.append(f"blur {recipe[column('sigma')]:.2f} px")
    if recipe[column("solarize")] <= 1:
        parts.append("solarize")
    return ", ".join(parts)


def _fitted(image: torch.Tensor, tile_px: int) -> np.ndarray:
    """The image, its longer side scaled to `tile_px`."""
    height, width = image.shape[:2]
    scale = tile_px / max(height, width)
    size = [max(1, round(height * scale)), max(1, round(width * scale))]
    planar = image.permute(2, 0, 1)[None]
    return torch.ops.aten._upsample_bilinear2d_aa(planar, size, False)[0].permute(1, 2, 0).numpy()
