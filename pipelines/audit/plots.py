"""Plots of the audit beside its numbers (VS-2FI, figures 6 and 8). For people: not part of the artifact's digest."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from viewkit.pipelines.audit.grid import Ranges
from viewkit.pipelines.audit.ranking import roc_curve
from viewkit.pipelines.audit.truth import Question
from viewkit.shards.spans import spanned

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@spanned("plot")
def plot_grid(
    path: Path,
    panels: Sequence[tuple[str, Float[np.ndarray, "4 4"]]],
    consistency: Ranges,
    level: Ranges,
    selected: Bool[np.ndarray, "4 4"],
) -> None:
    """Heat maps with Semantic Consistency across and Alignment Level upwards; `selected` cells have red frames.

    panels: title and values [consistency, level]; NaN is an empty cell.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(4.1 * len(panels), 3.7), layout="constrained")
    for axes, (title, values) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        shown = np.asarray(values, dtype=np.float64).T  # level, consistency
        axes.imshow(shown, origin="lower", cmap="viridis")
        known = shown[~np.isnan(shown)]
        middle = (known.min() + known.max()) / 2 if known.size else 0.0
        for y, x in np.ndindex(4, 4):
            value = float(shown[y, x])
            text = "" if np.isnan(value) else f"{value:,.0f}" if value.is_integer() else f"{value:.3f}"
            axes.text(x, y, text, ha="center", va="center", color="white" if value < middle else "black", fontsize=9)
            if selected[x, y]:
                axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="red", linewidth=2))
        axes.set_xticks(range(4), consistency.labels, fontsize=8)
        axes.set_yticks(range(4), level.labels, fontsize=8)
        axes.set(xlabel="Semantic Consistency", ylabel="Alignment Level", title=title)
        axes.title.set_fontsize(10)
    figure.savefig(path, dpi=110)


@spanned("plot")
def plot_sensitivity(path: Path, found: Mapping[str, Sequence[Mapping[str, float]]], used: Mapping[str, float]) -> None:
    """The surviving share over each threshold; a line marks the value that the others are read at."""
    from matplotlib.figure import Figure

    names = {"k_sc": "k_SC", "k_al": "k_AL", "gamma": "gamma"}
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    for axes, (key, name) in zip(figure.subplots(1, 3, sharey=True), names.items(), strict=True):
        values = [point["value"] for point in found[key]]
        lines = ("surviving", "pairs surviving"), ("above_both", "pairs above both"), ("relaxed", "rows that relax")
        for what, label in lines:
            axes.plot(values, [100 * point[what] for point in found[key]], "o-", markersize=3, label=label)
        axes.axvline(used[key], color="grey", linewidth=0.8, linestyle="--")
        axes.set_xlabel(name)
        if key == "gamma":
            axes.set_xscale("log", base=2)
    figure.axes[0].set_ylabel("%")
    figure.axes[0].set_ylim(0, 105)
    figure.axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=110)


@spanned("plot")
def plot_roc(path: Path, questions: Sequence[Question], answers: Sequence[Mapping[str, Any]]) -> None:
    """ROC curves of every rule: above one panel a question that has both kinds of pairs, below the same question among
    pairs whose crops share no area."""
    from matplotlib.figure import Figure

    both = [(q, a) for q, a in zip(questions, answers, strict=True) if 0 < a["true"] < a["pairs"]]
    lower = any(answer["true_apart"] and answer["true_apart"] < answer["apart"] for _, answer in both)
    figure = Figure(figsize=(4.2 * max(len(both), 1), 8 if lower else 4), layout="constrained")
    if not both:
        figure.text(0.5, 0.5, "no question has pairs of both kinds", ha="center")
        figure.savefig(path, dpi=110)
        return
    panels = figure.subplots(1 + lower, len(both), squeeze=False)
    for place, (question, answer) in enumerate(both):
        title = f"{question.name.replace('_', ' ')}: {answer['true']:,} of {answer['pairs']:,}"
        _draw_roc(panels[0][place], title, question, answer["rules"], np.ones(len(question.truth), dtype=bool), "")
        if lower and question.apart is not None and 0 < answer["true_apart"] < answer["apart"]:
            title = f"crops apart: {answer['true_apart']:,} of {answer['apart']:,}"
            _draw_roc(panels[1][place], title, question, answer["rules"], question.apart, "_apart")
        elif lower:
            panels[1][place].set_axis_off()
    figure.savefig(path, dpi=110)


def _draw_roc(
    axes: "Axes",
    title: str,
    question: Question,
    answers: Sequence[Mapping[str, Any]],
    among: Bool[np.ndarray, " m"],
    suffix: str,
) -> None:
    """One panel. suffix: of the answers' ROC areas that belong to the pairs `among` which the rules are compared."""
    for (name, score), rule in zip(question.rules.items(), answers, strict=True):
        width = 2.2 if name in ("semantic_consistency", "alignment_level") else 1
        label = f"{name.replace('_', ' ')} {rule[f'roc_area{suffix}']:.3f}"
        axes.plot(*roc_curve(score[among], question.truth[among]), linewidth=width, label=label)
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.6, linestyle="--")
    axes.set_title(title, fontsize=9)
    axes.set(xlabel="share of the others flagged", ylabel="share found", aspect="equal")
    axes.legend(fontsize=7, loc="lower right")
