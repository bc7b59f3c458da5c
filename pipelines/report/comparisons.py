"""Comparisons of arms over paired seeds: verdicts first, then the numbers they rest on; as text, and on the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from viewkit.pipelines.report.charts import Chart, Interval, Series, interval_chart, line_chart
from viewkit.pipelines.report.findings import FoundTable
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import read_file

RESULT, COSTS = "compare.json", "costs.json"
BASELINE_ROWS = {"pixels": "raw pixels", "untrained": "untrained, seed 0"}
"""Baselines in a table of arms; runs of several seeds share those of the first."""


@dataclass(frozen=True)
class ShownVerdict:
    """label: the arm and its steps. against: the control that pays for it, None for the reference. said: with the seeds
    that would be needed, `verdict` without. colour: ``helps``, ``hurts`` or nothing."""

    label: str
    probe: str
    against: str | None
    verdict: str
    said: str

    @property
    def compared(self) -> str:
        return self.label + ("" if self.against is None else f" against {self.against}")

    @property
    def colour(self) -> str:
        return "hurts" if self.verdict == "hurts" else "helps" if self.verdict in GOOD else ""


@dataclass(frozen=True)
class ShownComparison:
    """notes: what else a reader has to know."""

    name: str
    headline: str
    verdicts: tuple[ShownVerdict, ...]
    tables: tuple[FoundTable, ...]
    charts: tuple[Chart, ...]
    notes: tuple[str, ...]
    rules: tuple[str, ...]


def comparison_names(dataset: Dataset) -> list[str]:
    """Finished comparisons, in alphabetical order."""
    names = [name for name in dataset.artifacts() if name.startswith("compare/")]
    return [name.removeprefix("compare/") for name in names if dataset.artifact(name).is_complete]


def compared_runs(dataset: Dataset) -> set[str]:
    """Runs that a finished comparison is made of, as ``runs/NAME``: it speaks for them."""
    found = [read_comparison(dataset, name) for name in comparison_names(dataset)]
    return {run for each in found for arm in each["arms"] for run in arm["runs"]}


def show_comparison(dataset: Dataset, name: str) -> ShownComparison:
    """Everything the page says about one comparison."""
    found = read_comparison(dataset, name)
    data = found["data"]
    arms, *arm_rows = arm_table(found)
    differences, *difference_rows = difference_table(found)
    return ShownComparison(
        name=name,
        headline=f"{found['seeds']} seeds an arm, {data['num_test']} test images of {data['num_classes']} classes",
        verdicts=tuple(
            ShownVerdict(row["label"], probe, row["against"] if row["of_cost"] else None, each["verdict"], each["said"])
            for row in found["differences"]
            for probe, each in row["probes"].items()
        ),
        tables=(
            FoundTable(
                "Arms",
                "Top-1 in %, mean and standard deviation over seeds; operations of one training, of the offline stages "
                "it reads, and of both over the reference's.",
                tuple(arms),
                tuple(map(tuple, arm_rows)),
            ),
            FoundTable("Cost", COST_NOTE, *cost_rows(found)),
            FoundTable("Paired differences", DIFFERENCE_NOTE, tuple(differences), tuple(map(tuple, difference_rows))),
            FoundTable("McNemar's test, seed by seed", MCNEMAR_NOTE, *mcnemar_rows(found)),
        ),
        charts=(*difference_charts(name, found), *curve_charts(name, found)),
        notes=tuple(found["notes"]),
        rules=tuple(found["rules"]),
    )


GOOD = ("helps", "worth its cost")
COST_NOTE = (
    "Operations are counted; image passes count three where they are learnt from. Seconds of trainings are those logged"
    " on one core or device, of other stages those of one timed pass, without decoding and rendering."
)
DIFFERENCE_NOTE = (
    "In points over seeds: t interval; p of Student's test, corrected for the probes of an arm (Holm), of the "
    "sign-flip test (exact up to 14 seeds); share of seeds won; the true difference that four of five such "
    "comparisons would find; share of test images that only one of the two gets right."
)
MCNEMAR_NOTE = (
    "It compares two trained models, not two methods: images that the arm alone (+) and that the other alone (-) got "
    "right, and the exact p."
)


def cost_rows(found: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows of the table of costs: every arm's training, then every stage before it."""
    rows = []
    for arm in found["arms"]:
        cost = found["costs"][arm["label"]]
        parts = {"training": cost["training"], **cost["offline"], "in all": cost["total"]}
        for part, each in parts.items():
            seconds = "not known" if each["seconds"] is None else f"{each['seconds']:.0f}"
            missing = ", ".join(each.get("uncounted", []))
            rows.append((arm["label"], part, flops(each["flops"]), f"{each['passes']:,.0f}", seconds, missing))
    return ("arm", "part", "operations", "image passes", "seconds", "not counted"), tuple(rows)


def mcnemar_rows(found: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows: a column a seed."""
    rows = [
        (
            f"{row['label']} - {row['against']}",
            probe,
            *(f"+{each['gained']} -{each['lost']}, p {number(each['p'])}" for each in found_here["mcnemar"]),
        )
        for row in found["differences"]
        for probe, found_here in row["probes"].items()
    ]
    return ("difference", "probe", *(f"seed {seed}" for seed in range(found["seeds"]))), tuple(rows)


def difference_charts(name: str, found: Mapping[str, Any]) -> list[Chart]:
    """A chart a probe: every seed's difference, its mean and interval. Rows have numbers, the legend their names."""
    charts = []
    for place, probe in enumerate(found["arms"][0]["probes"]):
        intervals = [
            Interval(
                f"{row['label']} - {row['against']}",
                row["probes"][probe]["mean"],
                row["probes"][probe]["low"],
                row["probes"][probe]["high"],
                tuple(row["probes"][probe]["differences"]),
            )
            for row in found["differences"]
        ]
        said = "; ".join(f"{each.name}: {each.mean:+.2f}" for each in intervals)
        charts.append(
            interval_chart(
                f"compare-{digits(name)}-{place}",
                f"Paired differences, {probe}",
                intervals,
                band=found["matters"],
                x_label="points",
                alt=f"Differences over seeds in points, {probe}. {said}.",
            )
        )
    return charts


CURVES = {"loss": ("Loss", "loss"), "knn_top1": ("kNN accuracy while training", "knn_top1")}


def curve_charts(name: str, found: Mapping[str, Any]) -> list[Chart]:
    """Learning curves: means over seeds, a line a cell."""
    charts = []
    for metric, (title, label) in CURVES.items():
        series = [
            Series(cell, np.array(curves[metric]["step"]), np.array(curves[metric]["mean"]))
            for cell, curves in found["curves"].items()
            if metric in curves
        ]
        if series:
            ends = "; ".join(f"{line.name} ends at {line.y[-1]:.3g}" for line in series)
            charts.append(
                line_chart(
                    f"compare-{digits(name)}-{metric.replace('_', '-')}",
                    f"{title}, mean over seeds",
                    series,
                    x_label="step",
                    y_label=label,
                    alt=f"{title} over steps, mean over seeds. {ends}.",
                )
            )
    return charts


def digits(name: str) -> str:
    """A user's name as letters that an id of the page may have."""
    return name.encode().hex()


def read_comparison(dataset: Dataset, name: str) -> dict[str, Any]:
    """compare.json of a finished comparison, its costs among it."""
    artifact = dataset.artifact(f"compare/{name}")
    content: dict[str, Any] = decode_json(read_file(artifact.path(RESULT)))
    return {**content, "costs": decode_json(read_file(artifact.path(COSTS)))}


def text_lines(dataset: Dataset, name: str) -> list[str]:
    """Verdicts, then a table of arms, one of differences, and the rules."""
    found = read_comparison(dataset, name)
    lines = ["", *verdict_lines(found), ""]
    lines += [*aligned(arm_table(found)), "", *aligned(difference_table(found)), ""]
    lines += [f"note: {note}" for note in found["notes"]]
    lines += [f"rule: {rule}" for rule in found["rules"]]
    return lines


def verdict_lines(found: Mapping[str, Any]) -> list[str]:
    """One line for every pair of arms and probe."""
    return [
        f"{row['label']}, {probe}: {each['said']}" + (f" (against {row['against']})" if row["of_cost"] else "")
        for row in found["differences"]
        for probe, each in row["probes"].items()
    ]


def arm_table(found: Mapping[str, Any]) -> list[list[str]]:
    """Mean and standard deviation over seeds in percent, and costs."""
    probes = list(found["arms"][0]["probes"])
    rows = [["arm", *probes, "training", "offline", "of the reference's"]]
    for name, measured in found["baselines"].items():
        rows.append([BASELINE_ROWS.get(name, name), *(_percent(measured, probe) for probe in probes), "", "", ""])
    for arm in found["arms"]:
        cells = [spread(arm["probes"][probe]["mean"], arm["probes"][probe]["sd"]) for probe in probes]
        cost = found["costs"][arm["label"]]
        offline = sum(each["flops"] for each in cost["offline"].values())
        ratio = "" if cost["ratio"] is None else f"{cost['ratio']:.2f}"
        name = f"{arm['label']} (compute-matched)" if arm["control"] else arm["label"]
        rows.append([name, *cells, flops(cost["training"]["flops"]), flops(offline), ratio])
    return rows


def difference_table(found: Mapping[str, Any]) -> list[list[str]]:
    """Paired differences in points, with what each test says of them."""
    rows = [
        [
            "difference, points",
            "probe",
            "mean",
            "interval",
            "p t",
            "Holm",
            "sign flip",
            "won",
            "detectable",
            "disagree",
        ]
    ]
    for row in found["differences"]:
        for probe, each in row["probes"].items():
            interval = "" if each["low"] is None else f"{each['low']:+.1f} ... {each['high']:+.1f}"
            rows.append(
                [
                    f"{row['label']} - {row['against']}",
                    probe,
                    f"{each['mean']:+.2f}",
                    interval,
                    number(each["p_t"]),
                    number(each["p_holm"]),
                    number(each["p_flip"]),
                    f"{100 * each['won']:.0f} %",
                    "" if each["detectable"] is None else f"{each['detectable']:.1f}",
                    "" if each["disagreement"] is None else f"{100 * each['disagreement']:.0f} %",
                ]
            )
    return rows


def _percent(measured: Mapping[str, float], probe: str) -> str:
    return f"{measured[probe]:.1f}" if probe in measured else ""


def spread(mean: float, sd: float | None) -> str:
    return f"{mean:.1f}" if sd is None else f"{mean:.1f} ± {sd:.1f}"


def number(p: float | None) -> str:
    return "" if p is None else f"{p:.3f}" if p >= 0.001 else "<.001"


def flops(count: float) -> str:
    """``1.2 T``: operations in thousands, millions and so on."""
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
