"""Which of the component's two ends is foreground.

An eigenvector's sign is arbitrary. It is made reproducible first (`component.canonical`), then decided: photographs
show their subject nearer the centre than the border, so foreground is the end that the centre leans to. The skewness
of the scores and, for the network of the paper, the released component may speak against it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from viewkit.shards.errors import DataError
from viewkit.shards.spans import spanned

MIN_T = 5.0
"""Below this t statistic of centre against border the sign counts as undecided."""
STRONG_SKEW = 0.5
"""A foreground of 40 % gives a two-valued score a skewness of +0.41; as far below zero speaks against the sign."""
LARGEST_SD = 6.0
"""Scores farther from the median are drawn in to this many standard deviations before the sign is looked for: single
tokens of huge norm, as large ViTs have, would decide it otherwise. The deviation is that of the quartiles, which such
tokens do not move."""
QUARTILES = 1.349
"""Distance of the quartiles of a normal distribution of deviation 1."""
RELEASED_WIDTH, RELEASED_CHANNEL, RELEASED_SIZES = 1280, 621, (0.3, 0.65)
"""GenView's released component of ViT-H/14 has its largest coordinate, +0.476, in channel 621 of 1280, and its larger
end is foreground. A component of that width and largest channel is the same direction."""
LARGEST_RANGE = 2.0
"""Grey levels between the darkest and the brightest pixel of a flat patch: JPEG leaves some."""


@dataclass(frozen=True)
class Evidence:
    """t: of the images' differences, mean score at the centre less mean score at the border. skewness: of all scores.
    Both change sign with the component. flat: share of tokens that were left out, see `flat_patches`. released: sign of
    the released component along this one, None for another encoder than its own."""

    t: float
    skewness: float
    flat: float = 0.0
    released: int | None = None


def flat_patches(
    x: Float[Tensor, "n 3 s s"], std: tuple[float, float, float], grid: tuple[int, int]
) -> Bool[Tensor, "n gh gw"]:
    """Patches that show one colour only, such as the bars of letterboxed images.

    They lie at the border and are all alike, so they would decide on their own which end of the component the centre
    leans to: the end of everything that is no bar. x: an encoder's input, grey levels / 255 / std (less a mean). grid:
    rows and columns of its tokens.
    """
    n, channels, height, width = x.shape
    gh, gw = grid
    rows, columns = height // gh, width // gw
    x = x[:, :, : gh * rows, : gw * columns].float()
    patches = x.reshape(n, channels, gh, rows, gw, columns)
    spread = patches.amax(dim=(3, 5)) - patches.amin(dim=(3, 5))  # n 3 gh gw
    levels = spread * torch.tensor(std, device=x.device)[:, None, None] * 255
    return (levels <= LARGEST_RANGE).all(dim=1)


def border_width(side: int) -> int:
    """Patches that count as border on each side of a grid: 3 of 16, and at least 1."""
    return max(1, (3 * side) // 16)


def released_sign(vector: Float64[Tensor, " k"]) -> int | None:
    """+1 or -1: the end of a component of ViT-H/14 that GenView's release takes for foreground; None for others."""
    channel = int(vector.abs().argmax())
    size, (least, most) = vector[channel].abs().item(), RELEASED_SIZES
    if len(vector) != RELEASED_WIDTH or channel != RELEASED_CHANNEL or not least < size < most:
        return None
    return 1 if vector[channel] > 0 else -1


@spanned("sign")
def sign_evidence(
    scores: Float64[np.ndarray, "n gh gw"], flat: Bool[np.ndarray, "n gh gw"], released: int | None = None
) -> Evidence:
    """scores: projections of the patch tokens of n images on the component. flat: tokens to leave out."""
    kept = scores[~flat]
    share = float(flat.mean())
    if not kept.size or kept.min() == kept.max():
        return Evidence(t=0.0, skewness=0.0, flat=share, released=released)
    low, middle, high = np.quantile(kept, (0.25, 0.5, 0.75))
    spread = (high - low) / QUARTILES if high > low else kept.std()
    z = ((scores - middle) / spread).clip(-LARGEST_SD, LARGEST_SD)
    inner = _inner(*scores.shape[1:])
    difference = _mean_where(z, inner & ~flat) - _mean_where(z, ~inner & ~flat)
    difference = difference[~np.isnan(difference)]
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else 0.0
    t = float(difference.mean() / error) if error > 0 else 0.0
    centred = z[~flat] - z[~flat].mean()
    skewness = float((centred**3).mean() / centred.std() ** 3)
    return Evidence(t=t, skewness=skewness, flat=share, released=released)


def _inner(gh: int, gw: int) -> Bool[np.ndarray, "gh gw"]:
    top, left = border_width(gh), border_width(gw)
    inner = np.zeros((gh, gw), bool)
    inner[top : gh - top, left : gw - left] = True
    return inner


def _mean_where(z: Float64[np.ndarray, "n gh gw"], mask: Bool[np.ndarray, "n gh gw"]) -> Float64[np.ndarray, " n"]:
    """Mean over each image's mask; NaN where the mask is empty."""
    count = mask.sum(axis=(1, 2))
    total = np.where(mask, z, 0).sum(axis=(1, 2))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def resolve_sign(evidence: Evidence, asked: str, folder: str = "foreground", command: str = "viewkit generate") -> int:
    """+1 or -1: the end of the component that is foreground. asked: ``--sign``. folder, command: for messages, where
    the contact sheet lies and what is run again.

    Raises `DataError` when the evidence asked for is missing, weak or contradicts itself.
    """
    if asked in ("+", "-"):
        return 1 if asked == "+" else -1
    if asked == "reference":
        if evidence.released is None:
            raise DataError(
                "foreground: --sign reference is for ViT-H/14 of the paper, whose component is known; this encoder "
                "gives another one: use --sign auto"
            )
        return evidence.released
    if asked == "skewness":
        if evidence.skewness == 0:
            raise DataError("foreground: the scores have no skewness; set --sign + or --sign -")
        return 1 if evidence.skewness > 0 else -1
    sign = 1 if evidence.t > 0 else -1
    if why := _open_question(evidence, sign):
        raise DataError(
            f"foreground: which end of the component it is remains open: {why}; look at {folder}/masks.png in the "
            f"dataset, and run '{command} DATASET' with --sign + or --sign - (or skewness: the rarer end)"
        )
    return sign


def resolve_signs(evidence: Evidence, folder: str, command: str) -> dict[str, str]:
    """``+`` or ``-`` for every way of asking for the sign by evidence, or why it gives none."""
    found = {}
    for asked in ("auto", "skewness", "reference"):
        try:
            found[asked] = "+" if resolve_sign(evidence, asked, folder, command) > 0 else "-"
        except DataError as error:
            found[asked] = str(error)
    return found


def _open_question(evidence: Evidence, sign: int) -> str | None:
    """What is unclear about the sign that centre against border gives; None where all agrees."""
    if abs(evidence.t) < MIN_T:
        flat = f", {evidence.flat:.0%} of the patches show one colour only" if evidence.flat >= 0.1 else ""
        return f"centre against border is undecided (|t| is {abs(evidence.t):.1f}, {MIN_T:g} is needed{flat})"
    if sign * evidence.skewness <= -STRONG_SKEW:
        return f"centre against border (t {evidence.t:+.1f}) and skewness ({evidence.skewness:+.2f}) disagree"
    if evidence.released == -sign:
        return f"centre against border (t {evidence.t:+.1f}) and GenView's released component disagree"
    return None
