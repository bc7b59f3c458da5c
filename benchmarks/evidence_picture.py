"""docs/pictures/evidence.png: accuracy over the length of training, and over the training of the estimator."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence_page import difference, lengths, values_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

PICTURE = "evidence.png"
LENGTHS = ("evidence-mosaics-2x2", "evidence-mosaics-long")
"""Studies of one dataset that differ in the length of training."""
ARMS = ("stored", "vs2fi", "similar", "overlap", "combined", "oracle")
ESTIMATORS = {"evidence-estimator-0": 1, "evidence-estimator-100": 100, "evidence-estimator-1600": 1600}
"""Study -> steps of its estimator."""
METHODS = ("similar", "combined")


def draw(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Of the studies that are there; nothing where none is."""
    panels = [each for each in (over_lengths, over_estimators) if each(found, None)]
    if not panels:
        return
    figure = Figure(figsize=(5.2 * len(panels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for panel, axis in zip(panels, axes, strict=True):
        axis.set_xscale("log")
        panel(found, axis)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=110, metadata={"Software": None})


def over_lengths(found: Mapping[str, Mapping[str, Any]], axis: Axes | None) -> bool:
    """Mean and standard deviation of kNN accuracy over seeds, a line an arm. Whether there is anything to draw."""
    there = [found[name]["compare"] for name in LENGTHS if name in found]
    if axis is None or not there:
        return bool(there)
    for arm in ARMS:
        points = []
        for compared in there:
            for steps in lengths(compared):
                if values := values_of(compared, arm, steps):
                    knn = next(iter(values.values()))
                    mean = sum(knn) / len(knn)
                    points.append((steps, mean, (sum((x - mean) ** 2 for x in knn) / (len(knn) - 1)) ** 0.5))
        shown_line(axis, sorted(points), arm)
    axis.set(title="Mosaics of four photographs", xlabel="steps of training",
             ylabel="kNN accuracy, %")  # fmt: skip
    return True


def over_estimators(found: Mapping[str, Mapping[str, Any]], axis: Axes | None) -> bool:
    """What a method gains over `overlap`, with its 95 % interval, by the training of its estimator."""
    there = {steps: found[name]["compare"] for name, steps in ESTIMATORS.items() if name in found}
    if axis is None or len(there) < 2:
        return len(there) > 1
    for arm in METHODS:
        points = []
        for steps, compared in sorted(there.items()):
            gain = difference(compared, arm, "overlap", lengths(compared)[0])
            assert gain is not None
            knn = next(iter(gain.values()))
            assert knn.high is not None
            points.append((steps, knn.mean, knn.high - knn.mean))
        shown_line(axis, points, arm)
    axis.axhline(0, color="0.4", linewidth=0.8)
    axis.set(title="Gain over crops that overlap, 200 steps", xlabel="steps of the estimator", ylabel="points of kNN")
    return True


def shown_line(axis: Axes, points: Sequence[tuple[float, float, float]], name: str) -> None:
    x, y, spread = zip(*points, strict=True)
    axis.errorbar(x, y, yerr=spread, marker="o", markersize=4, linewidth=1.4, capsize=2, label=name)
    axis.set_xticks(list(x), [f"{value:,}" for value in x])
