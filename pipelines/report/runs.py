"""What a run's config says for people, and its training curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from viewkit.pipelines.hard_views.importance import view_importance
from viewkit.pipelines.hard_views.log import read_view_log
from viewkit.pipelines.report.charts import Chart, Series, line_chart
from viewkit.pipelines.report.findings import FoundTable
from viewkit.pipelines.training.method import method_of
from viewkit.pipelines.training.metrics import METRICS, read_metrics
from viewkit.shards.artifact import Artifact

POINTS = 240
"""Points of a curve at most; longer ones are averaged over equal stretches of lines."""

SHOWN = (
    ("spread", "Spread of outputs", "1: evenly over the sphere; near 0: collapsed, all images look the same."),
    ("rank_me", "Rank of the features", "Effective number of dimensions that a batch's features fill (RankMe)."),
    ("knn_top1", "kNN accuracy while training", "Share of right answers of the online probe."),
)
"""Metric, title and what it means; those that nothing has are left out. Losses are drawn apart, a chart a framework."""


def hard_view_table(artifact: Artifact) -> FoundTable | None:
    """Which sampled parameters a run's losses depended on; None where it did not log its views."""
    if not any(name.startswith("views/") for name in artifact.files):
        return None
    found = view_importance(read_view_log(artifact.whole_folder("views/")))
    if found is None:
        return None
    rows = [
        (name, f"{mean:.4f}", f"± {deviation:.4f}", f"{100 * variance:.1f} %")
        for name, mean, deviation, variance in zip(
            found.names, found.means, found.deviations, found.variances, strict=True
        )
    ]
    note = (
        f"Loss of R² ({found.r2:.2f}) of a random forest when a parameter is shuffled between pairs, on {found.rows:,} "
        f"rows; and the share of its variance that each explains alone (fANOVA). In {100 * found.lowest_iou:.0f} % of "
        "them the chosen pair overlaps least."
    )
    return FoundTable(
        f"What made pairs hard: {artifact.name.removeprefix('runs/')}",
        note,
        ("parameter", "importance", "deviation", "fANOVA"),
        tuple(rows),
    )


def runs_table(artifacts: Sequence[Artifact]) -> FoundTable | None:
    """Runs side by side, from their logs: how far each came, and how fast. None below two runs."""
    rows = []
    for artifact in artifacts:
        log = read_metrics(artifact.path(METRICS)) if METRICS in artifact.files else []
        if not log or artifact.identity.stage != "pretrain":
            continue
        losses, rates = logged(log, "loss"), logged(log, "images_per_s")
        best = max(zip(logged(log, "knn_top1"), logged(log, "step", "knn_top1"), strict=True), default=None)
        rows.append(
            (
                artifact.name.removeprefix("runs/"),
                method_of(artifact.identity.config),
                f"{log[-1]['step']:,}",
                f"{losses[0]:.3f}" if losses else "–",
                f"{losses[-1]:.3f}" if losses else "–",
                "–" if best is None else f"{100 * best[0]:.1f} at step {best[1]:,.0f}",
                f"{np.median(rates):,.0f}" if rates else "–",
            )
        )
    if len(rows) < 2:
        return None
    note = (
        "First and last loss as they were logged; images a second is the median of the log, on the machine it ran on."
    )
    columns = ("run", "pairs", "steps", "first loss", "last loss", "best kNN on the way, %", "images/s")
    return FoundTable("Runs side by side", note, columns, tuple(rows))


def logged(log: Sequence[Mapping[str, Any]], name: str, where: str | None = None) -> list[float]:
    """A number of all lines that have it, or of those that have the number `where`."""
    return [float(line[name]) for line in log if line.get(where or name) is not None]


def draw_curves(artifacts: Sequence[Artifact]) -> list[Chart]:
    """One chart per metric, one line per artifact that has a metrics.jsonl; losses are grouped by framework."""
    logs: dict[str, list[dict[str, Any]]] = {}
    frameworks: dict[str, list[str]] = {}
    for artifact in artifacts:
        if METRICS in artifact.files:
            name = artifact.name.removeprefix("runs/")
            logs[name] = read_metrics(artifact.path(METRICS))
            framework = artifact.identity.config.get("framework", artifact.identity.stage)
            frameworks.setdefault(str(framework), []).append(name)
    charts = [
        draw_exits(f"curve-exits-{index}", logs[names[0]])
        if has_exits(logs[names[0]])
        else draw_metric(
            f"curve-loss-{index}", logs, names, "loss", f"Loss, {framework}", "Mean of the steps in between."
        )
        for index, (framework, names) in enumerate(frameworks.items())
    ]
    charts += [draw_metric(f"curve-{metric}", logs, list(logs), metric, *words) for metric, *words in SHOWN]
    return [chart for chart in charts if chart is not None]


def has_exits(log: Sequence[Mapping[str, Any]]) -> bool:
    return bool(log) and "loss_exit_1" in log[0]


def draw_exits(chart: str, log: Sequence[Mapping[str, Any]]) -> Chart:
    """The estimator's loss, its head's and every exit's apart: all are the same InfoNCE (VS-2FI, eq. 4)."""
    names = {"loss_top": "head"}
    while (metric := f"loss_exit_{len(names)}") in log[0]:
        names[metric] = f"exit {len(names)}"
    series = [line for metric, name in names.items() if (line := read_series(name, log, metric)) is not None]
    ends = "; ".join(f"{line.name} from {line.y[0]:.3g} to {line.y[-1]:.3g}" for line in series)
    alt = f"Loss of the estimator's head and of its exits over steps. {ends}."
    return line_chart(chart, "Loss, estimator", series, x_label="step", y_label="loss", alt=alt)


def draw_metric(
    chart: str,
    logs: Mapping[str, Sequence[Mapping[str, Any]]],
    names: Sequence[str],
    metric: str,
    title: str,
    meaning: str,
) -> Chart | None:
    """A line for each of `names` that has the metric, in the colour that its name has in every chart."""
    places = {name: index for index, name in enumerate(logs)}
    found = [line for name in names if (line := read_series(name, logs[name], metric)) is not None]
    series = [replace(line, style=places[line.name]) for line in found]
    if not series:
        return None
    ends = "; ".join(f"{line.name} from {line.y[0]:.3g} to {line.y[-1]:.3g}" for line in series)
    alt = f"{title} over steps. {meaning} {ends}."
    return line_chart(chart, title, series, x_label="step", y_label=metric, alt=alt)


def read_series(name: str, log: Sequence[Mapping[str, Any]], metric: str) -> Series | None:
    """The metric over steps, at most `POINTS` of it; None when no line has it."""
    points = [(line["step"], line[metric]) for line in log if line.get(metric) is not None]
    if not points:
        return None
    x, y = np.array(points, dtype=np.float64).T
    parts = min(POINTS, len(x))
    return Series(name, mean_of_parts(x, parts), mean_of_parts(y, parts))


def mean_of_parts(values: np.ndarray, parts: int) -> np.ndarray:
    return np.array([part.mean() for part in np.array_split(values, parts)])
