"""Charts as inline SVG: text stays text, axes take the page's colour, and nothing of a user's names enters them.

Names belong to the HTML legend beside a chart (`Chart.legend`), where the template escapes them.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

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
    """svg: inline, with ids that no other chart has. alt: what it shows. legend: (name, colour, dashed)."""

    svg: str
    alt: str
    title: str
    legend: tuple[tuple[str, str, bool], ...] = ()


def style_of(index: int) -> tuple[str, bool]:
    """Colour of a series, and whether it is dashed."""
    return COLOURS[index % len(COLOURS)], index >= len(COLOURS)


def draw(name: str, size: tuple[float, float], paint: Callable[[Any], None]) -> str:
    """An SVG of `size` inches, painted by `paint(axes)`. name: made of letters and hyphens, unique on the page."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(RULES):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return inline(buffer.getvalue(), name)


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
    return Chart(draw(name, (4.6, 2.7), paint), alt, title, legend if len(legend) > 1 else ())


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
    return Chart(draw(name, (4.6, 2.7), paint), alt, title, legend if len(legend) > 1 else ())


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
    return Chart(draw(name, (4.6, 0.9 + 0.32 * len(intervals)), paint), alt, title, legend)


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

    return Chart(draw(name, (4.6, 2.7), paint), alt, title)
