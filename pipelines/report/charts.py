"""Charts as inline SVG: text stays text, axes take the page's colour, and nothing of a user's names enters them.

Names belong to the HTML legend beside a chart (`Chart.legend`), where the template escapes them. What is under the
pointer is told by the browser itself: over every chart lie transparent marks with a ``<title>``, escaped here, and the
same numbers are a table beside it (`Chart.columns`, `Chart.rows`). No script is needed for either.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from viewkit.shards.spans import spanned

INK = "#010203"
"""Stands for the page's text colour; replaced by ``currentColor``."""

COLOURS = ("#3f7fc1", "#d97b29", "#3c9a68", "#b8577f", "#8168b5", "#8c8234", "#3a97a3", "#b5523f")
"""Of lines and bars, legible on white and on near-black. More than eight series repeat them, dashed."""

RULES = {
    "svg.fonttype": "none",
    "svg.hashsalt": "viewkit",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True)
class Series:
    """A line: `y` over `x`. name: for the legend. style: place in `COLOURS`, where not the line's own place."""

    name: str
    x: Float[np.ndarray, " k"]
    y: Float[np.ndarray, " k"]
    style: int | None = None


@dataclass(frozen=True)
class Chart:
    """svg: inline, with ids that no other chart has. alt: what it shows. legend: (name, colour, dashed).

    columns, rows: its numbers as a table of text, of long curves at most `MARKS` points.
    """

    svg: str
    alt: str
    title: str
    legend: tuple[tuple[str, str, bool], ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


MARKS = 60
"""Points of a curve that can be pointed at, and rows of its table."""


@dataclass(frozen=True)
class Mark:
    """What a pointer between low and high, in the chart's own numbers along x (or y), is told."""

    low: float
    high: float
    text: str
    along: str = "x"


def style_of(index: int) -> tuple[str, bool]:
    """Colour of a series, and whether it is dashed."""
    return COLOURS[index % len(COLOURS)], index >= len(COLOURS)


@spanned("plot")
def draw(name: str, size: tuple[float, float], paint: Callable[[Any], None], marks: Sequence[Mark] = ()) -> str:
    """An SVG of `size` inches, painted by `paint(axes)`. name: made of letters and hyphens, unique on the page."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(RULES):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        over = "".join(_mark(axes, mark) for mark in marks)
    return inline(buffer.getvalue(), name).removesuffix("</svg>") + over + "</svg>"


def _mark(axes: Any, mark: Mark) -> str:
    """A transparent rectangle over the whole height (or width) of the axes, in the SVG's points, 72 an inch."""
    scale = 72 / axes.figure.dpi
    frame, height = axes.get_window_extent(), axes.figure.bbox.height
    corner = (axes.get_xlim()[0], axes.get_ylim()[0])
    points = [(end, corner[1]) if mark.along == "x" else (corner[0], end) for end in (mark.low, mark.high)]
    ends = axes.transData.transform(points)[:, 0 if mark.along == "x" else 1]
    if mark.along == "x":
        left, right = (min(max(end, frame.x0), frame.x1) for end in sorted(ends))
        low, high = frame.y0, frame.y1
    else:
        left, right = frame.x0, frame.x1
        low, high = (min(max(end, frame.y0), frame.y1) for end in sorted(ends))
    box = {"x": left, "y": height - high, "width": right - left, "height": high - low}
    sides = " ".join(f'{side}="{scale * value:.1f}"' for side, value in box.items())
    return f'<rect class="mark" {sides}><title>{escape(mark.text)}</title></rect>'


def marks_of(
    places: Sequence[tuple[float, float]], columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[Mark]:
    """A mark over each of `places` (low, high), which tells the row of the table, named by the columns."""
    return [
        Mark(low, high, "\n".join(f"{name}: {cell}" for name, cell in zip(columns, row, strict=True)))
        for (low, high), row in zip(places, rows, strict=True)
    ]


def between(x: Sequence[float]) -> list[tuple[float, float]]:
    """The stretch around each of some rising numbers, up to halfway to its neighbours."""
    middles = [(a + b) / 2 for a, b in pairwise(x)]
    first, last = (2 * x[0] - middles[0], 2 * x[-1] - middles[-1]) if middles else (x[0] - 0.5, x[-1] + 0.5)
    return list(zip([first, *middles], [*middles, last], strict=True))


def number(value: float) -> str:
    """Four digits that matter, without an exponent where that is short."""
    return f"{value:,.0f}" if abs(value) >= 1000 and value == round(value) else f"{value:.4g}"


def curve_rows(series: Sequence[Series]) -> tuple[list[float], list[tuple[str, ...]]]:
    """Places along x, at most `MARKS`, and a row of each: x, then every series' nearest point, – outside its range."""
    every = np.unique(np.concatenate([line.x for line in series]))
    places = every[np.unique(np.linspace(0, len(every) - 1, min(MARKS, len(every))).round().astype(int))]
    columns = []
    for line in series:
        nearest = np.abs(line.x[None] - places[:, None]).argmin(axis=1)
        inside = (places >= line.x.min()) & (places <= line.x.max())
        columns.append([number(float(line.y[at])) if known else "–" for at, known in zip(nearest, inside, strict=True)])
    rows = [(number(float(place)), *cells) for place, *cells in zip(places, *columns, strict=True)]
    return places.tolist(), rows


def inline(svg: str, name: str) -> str:
    """A document of matplotlib's as an element of the page: its own ids, no metadata, no size of its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style type=\"text/css\">.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = svg.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    svg = re.sub(r'^<svg([^>]*?) width="[^"]*"', r"<svg\1", svg)
    svg = re.sub(r'^<svg([^>]*?) height="[^"]*"', r"<svg\1", svg)
    svg = svg.replace(INK, "currentColor").replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r"font: ([0-9.]+px) 'sans-serif'", r"font-size: \1", svg)
    return re.sub(r"^<svg", '<svg aria-hidden="true" focusable="false"', svg).strip()


def line_chart(
    name: str, title: str, series: Sequence[Series], *, x_label: str, y_label: str, alt: str, log_y: bool = False
) -> Chart:
    """Lines; their names stand in the legend when there are two or more."""
    styles = [style_of(index if line.style is None else line.style) for index, line in enumerate(series)]

    def paint(axes: Any) -> None:
        for line, (colour, dashed) in zip(series, styles, strict=True):
            axes.plot(line.x, line.y, color=colour, linestyle="--" if dashed else "-")
        axes.set(xlabel=x_label, ylabel=y_label)
        if log_y:
            axes.set_yscale("log")

    legend = tuple((line.name, *style) for line, style in zip(series, styles, strict=True))
    places, rows = curve_rows(series)
    columns = (x_label, *(line.name for line in series))
    svg = draw(name, (4.6, 2.7), paint, marks_of(between(places), columns, rows))
    return Chart(svg, alt, title, legend if len(legend) > 1 else (), columns, tuple(rows))


def step_chart(
    name: str,
    title: str,
    edges: Float[np.ndarray, " k"],
    heights: Sequence[tuple[str, Float[np.ndarray, " b"]]],
    *,
    x_label: str,
    y_label: str,
    alt: str,
) -> Chart:
    """Histograms of b bins over the same k = b + 1 edges, filled."""

    def paint(axes: Any) -> None:
        for index, (_, values) in enumerate(heights):
            axes.stairs(values, edges, color=style_of(index)[0], fill=True, alpha=0.25)
            axes.stairs(values, edges, color=style_of(index)[0], linewidth=1.4)
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.set_ylim(bottom=0)

    legend = tuple((label, *style_of(index)) for index, (label, _) in enumerate(heights))
    bins = list(pairwise(edges.tolist()))
    columns = (x_label, *(f"{label}, {y_label}" for label, _ in heights))
    rows = [
        (f"{number(low)} to {number(high)}", *(number(float(values[b])) for _, values in heights))
        for b, (low, high) in enumerate(bins)
    ]
    svg = draw(name, (4.6, 2.7), paint, marks_of(bins, columns, rows))
    return Chart(svg, alt, title, legend if len(legend) > 1 else (), columns, tuple(rows))


@dataclass(frozen=True)
class Interval:
    """A mean with its interval (None where there is none) and the values it was made from. name: for the legend."""

    name: str
    mean: float
    low: float | None
    high: float | None
    values: tuple[float, ...]


def interval_chart(
    name: str, title: str, intervals: Sequence[Interval], *, band: float, x_label: str, alt: str
) -> Chart:
    """A row an interval, numbered from 1, values as dots. band: values within it, shaded, are as good as 0."""

    def paint(axes: Any) -> None:
        axes.axvspan(-band, band, color=INK, alpha=0.07, linewidth=0)
        axes.axvline(0, color=INK, linewidth=0.8)
        for place, each in enumerate(intervals):
            colour = style_of(place)[0]
            axes.plot(each.values, [place] * len(each.values), "o", color=colour, alpha=0.45, markersize=3.5)
            if each.low is not None:
                axes.plot([each.low, each.high], [place, place], color=colour)
            axes.plot([each.mean], [place], "D", color=colour, markersize=5)
        axes.set_yticks(range(len(intervals)), [str(place + 1) for place in range(len(intervals))])
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set(xlabel=x_label)

    legend = tuple((f"{place + 1}: {each.name}", style_of(place)[0], False) for place, each in enumerate(intervals))
    columns = ("", "mean", "low", "high", "values")
    rows = tuple(
        (
            each.name,
            *("–" if value is None else number(value) for value in (each.mean, each.low, each.high)),
            ", ".join(map(number, each.values)),
        )
        for each in intervals
    )
    marks = [
        Mark(place - 0.5, place + 0.5, f"{row[0]}\nmean: {row[1]}, {row[2]} to {row[3]}\nvalues: {row[4]}", "y")
        for place, row in enumerate(rows)
    ]
    svg = draw(name, (4.6, 0.9 + 0.32 * len(intervals)), paint, marks)
    return Chart(svg, alt, title, legend, columns, rows)


def bar_chart(
    name: str, title: str, labels: Sequence[str], shares: Sequence[float], *, x_label: str, y_label: str, alt: str
) -> Chart:
    """Bars with their values on top; `shares` in [0, 1]. labels: made by the program, never a user's."""

    def paint(axes: Any) -> None:
        bars = axes.bar(range(len(shares)), [100 * share for share in shares], color=COLOURS[0], width=0.72)
        axes.bar_label(bars, labels=[f"{100 * share:.0f}" for share in shares], padding=2, fontsize=8)
        axes.set_xticks(range(len(labels)), labels)
        axes.grid(False, axis="x")
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.margins(y=0.12)

    columns = (x_label, y_label)
    rows = tuple((label, f"{100 * share:.2f}") for label, share in zip(labels, shares, strict=True))
    marks = marks_of([(place - 0.5, place + 0.5) for place in range(len(shares))], columns, rows)
    return Chart(draw(name, (4.6, 2.7), paint, marks), alt, title, (), columns, rows)
