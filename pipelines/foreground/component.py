"""The first principal component of patch tokens, and which of its two ends is foreground (GenView, eq. 3).

An eigenvector's sign is arbitrary. It is made reproducible first (`canonical`), then decided: things that photographs
are taken of lie nearer the centre than the border, so foreground is the end that the centre leans to.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from viewkit.pipelines.generate.config import Sign
from viewkit.shards.errors import DataError

LEAST_T = 5.0
"""Below this t statistic of centre against border the sign counts as undecided."""
STRONG_SKEW = 0.5
"""A foreground of 40 % gives a two-valued score a skewness of +0.41; as far below zero speaks against the sign."""


@dataclass(frozen=True)
class Component:
    """vector: unit eigenvector, canonical sign. mean: of the tokens. eigenvalue_ratio: first to second; near 1 the
    direction is unstable, None where the second is 0. explained: share of the variance."""

    vector: Float64[Tensor, " k"]
    mean: Float64[Tensor, " k"]
    eigenvalue_ratio: float | None
    explained: float


@dataclass(frozen=True)
class Evidence:
    """t: of the images' differences, mean score at the centre less mean score at the border. skewness: of all scores.
    Both change sign with the component."""

    t: float
    skewness: float


def fit_component(covariance: Float64[Tensor, "k k"], mean: Float64[Tensor, " k"]) -> Component:
    values, vectors = torch.linalg.eigh(covariance)
    first, second = values[-1].item(), max(values[-2].item(), 0.0)
    if not first > 0:
        raise DataError("foreground: the encoder's tokens are all alike, there is no component; use another encoder")
    return Component(
        vector=canonical(vectors[:, -1]),
        mean=mean,
        eigenvalue_ratio=first / second if second > 0 else None,
        explained=first / values.clamp(min=0).sum().item(),
    )


def canonical(vector: Float64[Tensor, " k"]) -> Float64[Tensor, " k"]:
    """The one of v and -v whose coordinate of largest size is positive."""
    return vector if vector[vector.abs().argmax()] > 0 else -vector


def border_width(side: int) -> int:
    """Patches that count as border on each side of a grid: 3 of 16, and at least 1."""
    return max(1, (3 * side) // 16)


def sign_evidence(scores: Float64[np.ndarray, "n gh gw"]) -> Evidence:
    """scores: projections of the patch tokens of n images on the component."""
    n, gh, gw = scores.shape
    top, left = border_width(gh), border_width(gw)
    inner = np.zeros((gh, gw), bool)
    inner[top : gh - top, left : gw - left] = True
    centred = scores - scores.mean()
    spread = centred.std()
    if not inner.any() or spread == 0:
        return Evidence(t=0.0, skewness=0.0)
    difference = scores[:, inner].mean(axis=1) - scores[:, ~inner].mean(axis=1)
    error = difference.std(ddof=1) / np.sqrt(n)
    t = float(difference.mean() / error) if error > 0 else 0.0
    return Evidence(t=t, skewness=float(((centred / spread) ** 3).mean()))


def resolve_sign(evidence: Evidence, asked: Sign) -> int:
    """+1 or -1: the end of the component that is foreground.

    Raises `DataError` when `asked` is ``auto`` and the evidence is weak or contradicts itself.
    """
    if asked in ("+", "-"):
        return 1 if asked == "+" else -1
    if asked == "skewness":
        if evidence.skewness == 0:
            raise DataError("foreground: the scores have no skewness; set --sign + or --sign -")
        return 1 if evidence.skewness > 0 else -1
    sign = 1 if evidence.t > 0 else -1
    weak, against = abs(evidence.t) < LEAST_T, sign * evidence.skewness <= -STRONG_SKEW
    if weak or against:
        why = (
            f"centre against border is undecided (|t| is {abs(evidence.t):.1f}, {LEAST_T:g} is needed)"
            if weak
            else f"centre against border (t {evidence.t:+.1f}) and skewness ({evidence.skewness:+.2f}) disagree"
        )
        raise DataError(
            f"foreground: which end of the component it is remains open: {why}; look at foreground/masks.png "
            "in the dataset, and rerun with --sign + or --sign - (or skewness: the rarer end)"
        )
    return sign
