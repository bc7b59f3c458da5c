"""Plots of the histograms beside the artifact (VS-2FI, figures 9 and 10). For people: not part of its digest."""

from pathlib import Path

import numpy as np

from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.consistency import semantic_consistency
from viewkit.shards.spans import spanned

CONSISTENCY_PLOT = "consistency.png"
ALIGNMENT_PLOT = "alignment.png"


@spanned("plot")
def plot_consistency(histograms: Histograms, folder: Path) -> None:
    """p(S | pos), p(S | neg) and the Semantic Consistency curve over the similarity."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.4), layout="constrained")
    positive, negative, curve = figure.subplots(1, 3, sharex=True)
    edges = histograms.similarity_edges
    specs = (positive, histograms.positive, "p(S | pos)"), (negative, histograms.negative, "p(S | neg)")
    for axes, counts, title in specs:
        axes.stairs(counts / counts.sum(), edges, fill=True)
        axes.set_title(f"{title}, {counts.sum():,} pairs")
    s = np.linspace(edges[0], edges[-1], 512)
    curve.plot(s, semantic_consistency(s, histograms.consistency_curve))
    curve.plot(*histograms.consistency_curve, "o", markersize=3)
    curve.axhline(0.99, linewidth=0.8, linestyle="--", color="grey")
    curve.set_title(f"p(pos | S), p(pos) = {histograms.prior_positive:g}")
    figure.supxlabel("similarity S of the head")
    figure.savefig(folder / CONSISTENCY_PLOT, dpi=110)


@spanned("plot")
def plot_alignment(histograms: Histograms, folder: Path) -> None:
    """The distribution of log of the sum over N negatives, one panel an exit."""
    from matplotlib.figure import Figure

    columns = min(4, histograms.num_exits)
    rows = -(-histograms.num_exits // columns)
    figure = Figure(figsize=(3 * columns, 2.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    for level, axes in enumerate(panels, start=1):
        if level > histograms.num_exits:
            axes.set_visible(False)
            continue
        counts = histograms.log_sum[level - 1]
        axes.stairs(counts / counts.sum(), histograms.log_sum_edges[level - 1], fill=True)
        axes.set_title(f"exit {level}")
    figure.supxlabel(f"log of the sum of exp(S / {histograms.tau:g}) over {histograms.negatives} negatives")
    figure.savefig(folder / ALIGNMENT_PLOT, dpi=110)
