"""A comparison as plain text: verdicts first, then the numbers they rest on."""

from collections.abc import Mapping, Sequence
from typing import Any

from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import read_file

RESULT, COSTS = "compare.json", "costs.json"


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
    for arm in found["arms"]:
        cells = [spread(arm["probes"][probe]["mean"], arm["probes"][probe]["sd"]) for probe in probes]
        cost = found["costs"][arm["label"]]
        offline = sum(each["flops"] for each in cost["offline"].values())
        ratio = "" if cost["ratio"] is None else f"{cost['ratio']:.2f}"
        name = f"{arm['label']} (pays)" if arm["control"] else arm["label"]
        rows.append([name, *cells, flops(cost["training"]["flops"]), flops(offline), ratio])
    return rows


def difference_table(found: Mapping[str, Any]) -> list[list[str]]:
    """Paired differences in points, with what each test says of them."""
    rows = [
        ["difference, points", "probe", "mean", "interval", "p t", "Holm", "p signs", "won", "could find", "disagree"]
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
