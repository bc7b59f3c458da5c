"""Galleries of scored pairs: the ends of Semantic Consistency and of Alignment Level, rendered from their recipes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, UInt8

from viewkit.pipelines.pairs.column import CONSISTENCY, LEVEL, SIMILARITIES, ScoredPairs
from viewkit.pipelines.report.pictures import Picture, fit_inside, picture
from viewkit.pipelines.views.policy import Interpolation
from viewkit.pipelines.views.recipe import BOX, column
from viewkit.pipelines.views.render.render import render
from viewkit.shards.codecs import decode_image
from viewkit.shards.column import Column

CONSISTENT = 0.99
"""In place of k_SC where no histograms tell it: what galleries of Alignment Level then show pairs among."""

BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Outline:
    """Where a view was cropped: percent of the picture. index: 0 or 1, the view."""

    top: float
    left: float
    height: float
    width: float
    index: int


@dataclass(frozen=True)
class Source:
    picture: Picture
    outlines: tuple[Outline, ...]
    is_generated: bool


@dataclass(frozen=True)
class PairExample:
    key: str
    round: int
    consistency: float
    level: int
    similarity: float
    sources: tuple[Source, ...]
    views: tuple[Picture, Picture]


@dataclass(frozen=True)
class Gallery:
    """title, about: what is shown and why it matters, for people."""

    title: str
    about: str
    examples: tuple[PairExample, ...]


def pick_pairs(
    values: Float32[np.ndarray, "n r c"], allowed: Bool[np.ndarray, "n r c"], count: int, *, highest: bool
) -> list[tuple[int, int, int]]:
    """The `count` rows with the lowest (highest) value among their allowed pairs, as (row, round, pair).

    At most one pair per row; of equal values the earlier row, and the earlier pair, comes first.
    """
    signed = np.where(allowed, -values if highest else values, np.inf).reshape(len(values), -1)
    best = signed.argmin(axis=1)
    rows = np.argsort(signed[np.arange(len(signed)), best], kind="stable")
    found = [int(row) for row in rows if np.isfinite(signed[row, best[row]])]
    return [(row, *divmod(int(best[row]), values.shape[2])) for row in found[:count]]


def make_galleries(
    sample: ScoredPairs,
    images: Column,
    generated: Column | None,
    *,
    count: int,
    side_px: int,
    k_sc: float | None = None,
    interpolation: Interpolation = "bilinear",
) -> list[Gallery]:
    """Four galleries. generated: the column of generated views that the pairs were cropped from; where it is None
    (not there, or the pairs are of none) pairs with such a view are left out.

    k_sc: galleries of Alignment Level show what is left after this first filter (Alg. 1), None where it is not known.
    interpolation: of the policy.
    """
    allowed = np.ones(sample.consistency.shape, dtype=bool) if generated else sample.of_originals
    best = sample.consistency.max(axis=2, keepdims=True, where=allowed, initial=0)
    consistent = allowed & (sample.consistency >= np.minimum(CONSISTENT if k_sc is None else k_sc, best))
    limit = f"{CONSISTENT:g}" if k_sc is None else f"{k_sc:.3f}, the trainer's k_SC by default"
    among = f"Among pairs with a Semantic Consistency of {limit}, or the most their image has in that round."
    plans = (
        ("Low Semantic Consistency", "The pairs that the estimator least takes for two views of one image; the filter "
         "leaves them out first. They are candidates for false positives, not known ones: after a short training, or "
         "on few images, pairs that plainly show the same thing are among them.", sample.consistency, allowed, False),
        ("High Semantic Consistency", "Two views that the estimator most surely takes for one image.",
         sample.consistency, allowed, True),
        ("Low Alignment Level", f"Pairs that even a shallow exit recognises: too alike to teach much. {among}",
         sample.level, consistent, False),
        ("High Alignment Level", "Pairs that only a deep exit recognises, or none: same content, different "
         f"appearance. {among}",
         sample.level, consistent, True),
    )  # fmt: skip
    cache: dict[tuple[str, int], np.ndarray] = {}
    columns = {0: images, **({1: generated} if generated else {})}
    return [
        Gallery(
            title,
            about,
            tuple(
                show_pair(sample, place, columns, cache, side_px=side_px, interpolation=interpolation)
                for place in pick_pairs(values, mask, count, highest=highest)
            ),
        )
        for title, about, values, mask, highest in plans
    ]


def show_pair(
    sample: ScoredPairs,
    place: tuple[int, int, int],
    columns: Mapping[int, Column],
    cache: dict[tuple[str, int], np.ndarray],
    *,
    side_px: int,
    interpolation: Interpolation = "bilinear",
) -> PairExample:
    """One pair: the views, and the images they were cropped from, with the crops outlined."""
    row, round_, pair = place
    key = sample.keys[row]
    recipes = sample.recipes[row, round_][sample.views[pair]]  # 2 p
    kinds = [int(kind) for kind in recipes[:, column("source")]]
    for kind in set(kinds):
        if (key, kind) not in cache:
            source = columns[kind]
            cache[key, kind] = decode_image(source.fields(source.place_of[key]))
    views = render_views([cache[key, kind] for kind in kinds], recipes, side_px, interpolation)
    sources = tuple(
        Source(
            picture(fit_inside(cache[key, kind], side_px), f"{'generated image' if kind else 'image'} of {key}"),
            tuple(outline(recipes[index], index) for index in (0, 1) if kinds[index] == kind),
            bool(kind),
        )
        for kind in sorted(set(kinds))
    )
    first, second = (picture(view, f"view {name} of {key}") for view, name in zip(views, "AB", strict=True))
    scores = sample.scores[row, round_, pair]
    return PairExample(
        key,
        round_,
        float(scores[CONSISTENCY]),
        int(scores[LEVEL]),
        float(scores[SIMILARITIES]),
        sources,
        (first, second),
    )


def outline(recipe: Float32[np.ndarray, " p"], index: int) -> Outline:
    top, left, height, width = (round(100 * float(value), 2) for value in recipe[BOX])
    return Outline(top, left, height, width, index)


def render_views(
    images: Sequence[UInt8[np.ndarray, "_h _w 3"]],
    recipes: Float32[np.ndarray, "m p"],
    side_px: int,
    interpolation: Interpolation = "bilinear",
) -> UInt8[np.ndarray, "m side side 3"]:
    """The views as people see them: 0-255, not normalised."""
    tensors = [torch.from_numpy(np.ascontiguousarray(image)) for image in images]
    index = torch.arange(len(tensors))
    views = render(tensors, recipes, index, side_px=side_px, mean=BLACK, std=WHITE, interpolation=interpolation)
    return (views.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
