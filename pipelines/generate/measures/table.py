"""The table of a generator's quality over noise levels: fidelity, diversity, Fréchet distance, copies, colour.

The same for every generator: features of views and images go in, by an encoder that judges, and a row a level comes
out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt8

from viewkit.pipelines.generate.fidelity import cosines
from viewkit.pipelines.generate.measures.copying import REAL_SHARE, copied_share, copy_threshold, nearest_distance
from viewkit.pipelines.generate.measures.frechet import frechet_distance

ERRORS = 2.0
"""So many standard errors must a change exceed."""
FEWEST = 8
"""Images on each side of a Fréchet distance, at least."""


class Judged(NamedTuple):
    """Of pictures, as the judge sees them: features, features of the mirrored picture, mean colour in 0 ... 1."""

    features: Float64[np.ndarray, "n d"]
    mirrored: Float64[np.ndarray, "n d"]
    colour: Float64[np.ndarray, "n 3"]

    def rows(self, chosen: Bool[np.ndarray, " n"] | Int64[np.ndarray, " _"]) -> "Judged":
        return Judged(*(values[chosen] for values in self))

    @property
    def both_ways(self) -> Float64[np.ndarray, "2 n d"]:
        return np.stack([self.features, self.mirrored])


@dataclass(frozen=True)
class Real:
    """Real images to compare with. sources: those that views were made of. known: those that may have been copied.
    own: place of each source among the known, -1 where it is none. compared: for Fréchet distances, whose floor is that
    between `compared` and the sources themselves. apart: sources that are not among `compared`."""

    sources: Judged
    known: Float64[np.ndarray, "m d"]
    own: Int64[np.ndarray, " n"]
    compared: Float64[np.ndarray, "k d"]
    apart: Bool[np.ndarray, " n"]

    @staticmethod
    def of_dataset(sources: Judged, others: Float64[np.ndarray, "m d"]) -> "Real":
        """Every image may have been copied for another one. The other images are compared with; where there are none to
        speak of, every second source is."""
        places = np.arange(len(sources.features))
        known = np.concatenate([sources.features, others])
        if len(others) >= FEWEST:
            return Real(sources, known, places, others, np.ones(len(places), bool))
        second = places % 2 == 1
        return Real(sources, known, places, sources.features[second], ~second)

    def threshold(self) -> float:
        """See `copying`."""
        return copy_threshold(nearest_distance(self.sources.both_ways, self.known, self.own))


@dataclass(frozen=True)
class LevelRow:
    """cosine: of an image and its first view, with its error; chance: of a view and another image. diversity: 1 -
    cosine of two views of an image; None where it has one. frechet: of first views and real images, floor: of real and
    real images, in equal numbers; None where there are too few. copied: share of first views nearer to a known image
    than `REAL_SHARE` of the real ones are to theirs. colour: error of the mean colour, 0 ... 1."""

    level: int
    images: int
    cosine: float
    cosine_error: float
    chance: float | None
    diversity: float | None
    diversity_error: float | None
    frechet: float | None
    floor: float | None
    copied: float
    colour: float
    colour_error: float

    def numbers(self) -> dict[str, float | int | None]:
        """JSON values."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: round(value, 5) if isinstance(value, float) else value for name, value in values}


def measure_level(
    level: int, views: Sequence[Judged], real: Real, chosen: Int64[np.ndarray, " n"], threshold: float
) -> LevelRow:
    """views: v judged views of each of the chosen sources; the first are compared with images, all with each other."""
    sources, first = real.sources.rows(chosen), views[0]
    cosine, cosine_error = mean_and_error(cosines(first.features, sources.features))
    chance = float(cosines(first.features, np.roll(sources.features, 1, axis=0)).mean()) if len(chosen) > 1 else None
    diversity, diversity_error = None, None
    if len(views) > 1:
        diversity, diversity_error = mean_and_error(pairwise_distance([each.features for each in views]))
    apart = real.apart[chosen]
    enough = min(apart.sum(), len(real.compared)) >= FEWEST
    distance = nearest_distance(first.both_ways, real.known, real.own[chosen])
    colour, colour_error = mean_and_error(np.abs(first.colour - sources.colour).mean(axis=1))
    return LevelRow(
        level=level,
        images=len(chosen),
        cosine=cosine,
        cosine_error=cosine_error,
        chance=chance,
        diversity=diversity,
        diversity_error=diversity_error,
        frechet=frechet_distance(real.compared, first.features[apart]) if enough else None,
        floor=frechet_distance(real.compared, sources.features[apart]) if enough else None,
        copied=copied_share(distance, threshold),
        colour=colour,
        colour_error=colour_error,
    )


def mean_and_error(values: Float64[np.ndarray, " n"]) -> tuple[float, float]:
    """Their mean and its standard error, 0 for a single one."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return float(values.mean()), error


def pairwise_distance(views: Sequence[Float64[np.ndarray, "n d"]]) -> Float64[np.ndarray, " n"]:
    """1 - cosine of two views, averaged over all pairs of an image's views."""
    pairs = [(a, b) for i, a in enumerate(views) for b in views[i + 1 :]]
    return np.mean([1 - cosines(a, b) for a, b in pairs], axis=0)


def mean_colour(pictures: Sequence[UInt8[np.ndarray, "_h _w 3"]]) -> Float64[np.ndarray, "n 3"]:
    """Mean of each channel, 0 ... 1."""
    return np.stack([picture.reshape(-1, 3).mean(axis=0) / 255 for picture in pictures])


def doubts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What speaks against a generator, by its table: a level must cost fidelity and give diversity."""
    if len(rows) < 2:
        return []
    low, high = rows[0], rows[-1]
    found = []
    for name, sign, should in (("cosine", -1, "fall"), ("diversity", 1, "rise")):
        if low[name] is None or high[name] is None:
            continue
        change = sign * (high[name] - low[name])
        error = float(np.hypot(low[f"{name}_error"], high[f"{name}_error"]))
        if not change > ERRORS * error:
            found.append(
                f"{name} is {low[name]:.3f} at level {low['level']} and {high[name]:.3f} at level {high['level']}; it "
                f"should {should} by more than {ERRORS:g} standard errors ({ERRORS * error:.3f}), so the level hardly "
                "decides what views show"
            )
    chance = REAL_SHARE + ERRORS * float(np.sqrt(REAL_SHARE * (1 - REAL_SHARE) / low["images"]))
    if low["copied"] > chance:
        found.append(
            f"{low['copied']:.0%} of the views at level {low['level']} have a nearer known image than "
            f"{1 - REAL_SHARE:.0%} of the images have, and {REAL_SHARE:.0%} should: they may be copies, or plain"
        )
    return found


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table, a line a level."""
    lines = [
        "level  images  cosine           chance  diversity        Fréchet    real   copied  colour error",
        *(_line(row) for row in rows),
    ]
    return [*lines, f"copied: of real images it is {REAL_SHARE:.0%}"] if rows else []


def _line(row: Mapping[str, Any]) -> str:
    diversity = "-" if row["diversity"] is None else f"{row['diversity']:.3f} +- {row['diversity_error']:.3f}"
    distances = [f"{row[name]:.3g}" if row[name] is not None else "-" for name in ("frechet", "floor")]
    chance = "-" if row["chance"] is None else f"{row['chance']:.3f}"
    return (
        f"{row['level']:5}  {row['images']:6}  {row['cosine']:.3f} +- {row['cosine_error']:.3f}  {chance:6}  "
        f"{diversity:15}  {distances[0]:7}    {distances[1]:5}  {row['copied']:6.1%}  {row['colour']:.3f} +- "
        f"{row['colour_error']:.3f}"
    )
