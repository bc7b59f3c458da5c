"""How near generated views are to their images: mean cosine of embeddings, and by noise level (GenView, tab. 10).

A cosine means little by itself, since embeddings of unrelated images have one, too: `chance` is that, measured on the
same views paired with other images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64


@dataclass(frozen=True)
class Mean:
    """images: how many. cosine: their mean, with its standard error (0 for a single image)."""

    images: int
    cosine: float
    error: float


@dataclass(frozen=True)
class Fidelity:
    """all: over all images. chance: mean cosine of a view and another image. levels: by noise level, ascending."""

    all: Mean
    chance: float
    levels: Mapping[int, Mean]

    def numbers(self) -> dict[str, Any]:
        """JSON values; share: of the images that have the level."""
        return {
            "images": self.all.images,
            "cosine": round(self.all.cosine, 5),
            "error": round(self.all.error, 5),
            "chance": round(self.chance, 5),
            "levels": {
                str(level): {
                    "share": round(mean.images / self.all.images, 5),
                    "cosine": round(mean.cosine, 5),
                    "error": round(mean.error, 5),
                }
                for level, mean in self.levels.items()
            },
        }


def summarise(
    cosine: Float64[np.ndarray, " n"], other: Float64[np.ndarray, " n"], level: Int64[np.ndarray, " n"]
) -> Fidelity:
    """cosine: of each image's view and the image. other: of its view and another image. level: its noise level."""
    levels = {int(each): _mean(cosine[level == each]) for each in np.unique(level)}
    return Fidelity(_mean(cosine), float(other.mean()), levels)


def _mean(values: Float64[np.ndarray, " m"]) -> Mean:
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return Mean(len(values), float(values.mean()), error)


def cosines(a: Float64[np.ndarray, "n d"], b: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, " n"]:
    """Cosine of each pair of rows; 0 where a row is zero."""
    norm = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(axis=1) / np.where(norm > 0, norm, 1))


def judge_of(numbers: Mapping[str, Any]) -> tuple[str, bool]:
    """(name of the encoder that judged, whether it had no part in making the views) of a fidelity.json; those of
    earlier versions do not say the latter, and were judged by the encoder that made the views unless another was
    asked for."""
    return str(numbers["encoder"]["encoder"]), bool(numbers.get("independent", False))


def table_lines(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A table of named results (`Fidelity.numbers`), a row each: cosine, chance, and at each level share and cosine."""
    levels = sorted({int(level) for _, numbers in rows for level in numbers["levels"]})
    width = max(8, *(len(name) for name, _ in rows))
    lines = [f"{'views':{width}}  images  cosine          chance  " + "  ".join(f"level {each:<9}" for each in levels)]
    for name, numbers in rows:
        cells = []
        for each in levels:
            found = numbers["levels"].get(str(each))
            cells.append(f"{found['share']:6.1%} {found['cosine']:.3f}  " if found else f"{'-':>6}{'':9}")
        lines.append(
            f"{name:{width}}  {numbers['images']:6}  {numbers['cosine']:.3f} +- {numbers['error']:.3f}  "
            f"{numbers['chance']:6.3f}  " + "  ".join(cells)
        )
    return [line.rstrip() for line in lines]
