"""A line of small bars: how a number went, as wide as a word."""

from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-~=+*#"
WIDTH = 24


def sparkline(values: Sequence[float], width: int = WIDTH, bars: str = BARS) -> str:
    """One bar for each value, or, of more than `width` values, for the mean of each of `width` equal parts.

    The lowest bar is the smallest of them, the highest the largest; equal values are all the lowest. Values that are
    not finite are left out.
    """
    finite = [value for value in values if abs(value) < float("inf")]
    if len(finite) > width:
        edges = [round(place * len(finite) / width) for place in range(width + 1)]
        finite = [sum(finite[a:b]) / (b - a) for a, b in pairwise(edges)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(bars[round((value - low) * scale)] for value in finite)


def bars_for(encoding: str | None) -> str:
    """The bars that a stream of this encoding can show."""
    try:
        BARS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII_BARS
    return BARS
