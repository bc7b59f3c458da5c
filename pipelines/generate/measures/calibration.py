"""How much of an embedding a noise level leaves: the share of images that are still recognised, and levels by it.

A level says how much noise is added, not how much that hides, which depends on how far apart a dataset's embeddings
lie. Here a noised embedding is assigned to the image that most likely gave it: nobody could do better.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.generate.noising import add_noise

GRID = tuple(range(0, 1000, 37))
"""Levels at which the share is measured; 0 and 999 are among them."""
ANCHORS = (0.9, 0.5, 0.1)
"""Shares at which the first, the third and the fifth of the calibrated levels lie."""
BLOCK = 1024


def recognised_share(
    z: Float[Tensor, "n d"], level: int, noise: Float[Tensor, "n d"], abar: Float[Tensor, " l"]
) -> float:
    """Share of the noised embeddings whose nearest image, |q - sqrt(abar) z_j|, is their own; ties are lost.

    z: standardised embeddings of n images, at least 2. noise: of each of them.
    """
    queries = add_noise(z, torch.full((len(z),), level), noise, abar)
    scaled = abar[level].sqrt() * z
    square, found = scaled.square().sum(dim=1), 0
    for start in range(0, len(z), BLOCK):
        part = slice(start, start + BLOCK)
        score = square - 2 * queries[part] @ scaled.T  # n m: distance squared less what is the same for all images
        rows = torch.arange(len(score))
        own = score[rows, rows + start].clone()
        score[rows, rows + start] = torch.inf
        found += int((own < score.min(dim=1).values).sum())
    return found / len(z)


def calibrate(
    z: Float[Tensor, "n d"], noise: Float[Tensor, "n d"], abar: Float[Tensor, " l"], levels: Sequence[int] = GRID
) -> dict[int, float]:
    """Level -> share that is recognised; never rising, since what is left of it above a level is chance."""
    shares, lowest = {}, 1.0
    for level in levels:
        lowest = min(lowest, recognised_share(z, level, noise, abar))
        shares[level] = lowest
    return shares


def level_of(shares: dict[int, float], share: float) -> int:
    """Where the share falls to this one, by straight lines between the levels measured; an end where it never does."""
    levels = sorted(shares)
    if shares[levels[0]] <= share:
        return levels[0]
    for low, high in pairwise(levels):
        if shares[high] <= share:
            return round(low + (shares[low] - share) / (shares[low] - shares[high]) * (high - low))
    return levels[-1]


def five_levels(shares: dict[int, float]) -> list[int]:
    """GenView's five steps, calibrated: first, third and fifth at `ANCHORS`, the others halfway between."""
    first, third, fifth = (level_of(shares, share) for share in ANCHORS)
    return [int(each) for each in np.rint([first, (first + third) / 2, third, (third + fifth) / 2, fifth])]
