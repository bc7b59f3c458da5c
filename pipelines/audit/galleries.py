"""Galleries: a few rendered pairs of every range of an indicator, to be looked at (VS-2FI, figures 5 and 11)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8

from viewkit.pipelines.encoders.encoder import UNIT_STD, ZERO_MEAN
from viewkit.pipelines.pairs.column import ScoredPairs
from viewkit.pipelines.pairs.samples import load_image
from viewkit.pipelines.views.policy import Interpolation
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.views.sheet import GAP
from viewkit.shards.column import Column

Place = tuple[int, int, int]
"""Row, round and pair."""
PAIRS_A_LINE = 6
NAME_PX, CAPTION_PX, DPI = 90, 18, 110
"""Width for a range's name, height for a caption, and pixels an inch, which set the size of the text."""


def pick_pairs(place: Int64[np.ndarray, "n r c"], part: int, count: int, rng: np.random.Generator) -> list[Place]:
    """`count` random pairs of one range, at most one a row; fewer where the range has fewer rows."""
    flat = rng.permutation(np.flatnonzero(place.reshape(-1) == part))
    rows = flat // (place.shape[1] * place.shape[2])
    _, first = np.unique(rows, return_index=True)  # of every row, the first in the permutation
    chosen = flat[np.sort(first)][:count]
    found = zip(*np.unravel_index(chosen, place.shape), strict=True)
    return [(int(row), int(round_), int(pair)) for row, round_, pair in found]


def render_pairs(
    sample: ScoredPairs,
    places: Sequence[Place],
    images: Column,
    generated: Column | None,
    tile_px: int,
    interpolation: Interpolation = "bilinear",
) -> list[UInt8[np.ndarray, "h w 3"]]:
    """Every pair as one picture: both views, resized as the policy does, beside each other, `GAP` white pixels
    between."""
    pictures = []
    for row, round_, pair in places:
        views = sample.views[pair]
        key = sample.keys[row]
        sources = []
        for kind in sample.source[row, round_, views].tolist():
            column = generated if kind and generated is not None else images
            sources.append(load_image(column.fields(column.place_of[key]), "cpu"))
        recipes = sample.recipes[row, round_, views]
        rendered = render(
            sources,
            recipes,
            torch.arange(2),
            side_px=tile_px,
            mean=ZERO_MEAN,
            std=UNIT_STD,
            interpolation=interpolation,
        )
        pixels = (rendered.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
        gap = np.full((tile_px, GAP, 3), 255, dtype=np.uint8)
        pictures.append(np.concatenate([pixels[0], gap, pixels[1]], axis=1))
    return pictures


def draw_gallery(
    path: Path,
    title: str,
    sample: ScoredPairs,
    parts: Sequence[tuple[str, Sequence[Place]]],
    images: Column,
    generated: Column | None,
    tile_px: int,
    interpolation: Interpolation = "bilinear",
) -> None:
    """A contact sheet as PNG, about one pixel a pixel. parts: name of a range and its pairs, a line or more each."""
    from matplotlib.figure import Figure

    lines: list[tuple[str, Sequence[Place]]] = []
    for name, places in parts:
        for start in range(0, max(len(places), 1), PAIRS_A_LINE):
            lines.append((name if start == 0 else "", places[start : start + PAIRS_A_LINE]))
    step_x, step_y = 2 * tile_px + 4 * GAP, tile_px + CAPTION_PX
    sheet = np.full((len(lines) * step_y + CAPTION_PX, PAIRS_A_LINE * step_x + NAME_PX, 3), 255, dtype=np.uint8)
    size = sheet.shape[1] / DPI, sheet.shape[0] / DPI
    figure = Figure(figsize=size, dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.text(GAP, CAPTION_PX / 2, title, fontsize=9, va="center")
    for line, (name, places) in enumerate(lines):
        top = (line + 1) * step_y - tile_px + CAPTION_PX - GAP
        said = name if places or not name else f"{name}\nno pair"
        axes.text(GAP, top + tile_px / 2, said, fontsize=8, va="center")
        for place, picture, left in zip(
            places,
            render_pairs(sample, places, images, generated, tile_px, interpolation),
            range(NAME_PX, sheet.shape[1], step_x),
            strict=False,
        ):
            sheet[top : top + tile_px, left : left + picture.shape[1]] = picture
            caption = f"SC {sample.consistency[place]:.2f}, level {sample.level[place]:.0f}"
            axes.text(left, top - GAP / 2, caption, fontsize=6, va="bottom")
    axes.imshow(sheet, interpolation="nearest", aspect="auto")
    figure.savefig(path)
