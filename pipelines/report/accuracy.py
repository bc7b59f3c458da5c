"""The accuracy table: every run's probes beside the baselines, and against random pairs."""

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from viewkit.pipelines.report.comparisons import compared_runs, comparison_names, read_comparison, verdict_lines
from viewkit.pipelines.training.method import METHOD, is_random, method_of
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import read_file

RESULT = "eval.json"
WIDTH = 100
"""Letters of a line of notes in a terminal."""
CLEAR = 2.0
"""Standard errors that a difference must exceed to be called one."""

BASELINES = {"pixels": "raw pixels", "untrained": "untrained encoder"}
NAMES = {"sgd": "linear SGD", "augmented": "linear crops", "moco_v3": "linear MoCo v3", "finetune": "fine-tuned"}
"""Probes for people, where their own name is not good enough."""


@dataclass(frozen=True)
class AccuracyRow:
    """name: of the run, or of a baseline. method: how its pairs were made, for people.

    top1: probe -> accuracy in [0, 1]; raw pixels lack the probes that need a network. more: probe -> its other
    numbers. change: probe -> accuracy less that of the run with random pairs and otherwise the same settings. doubt:
    probe -> `CLEAR` standard errors of that difference. reference: name of that run, None for baselines and where there
    is none. other_references: names of those that could stand in its place.
    """

    name: str
    method: str
    top1: Mapping[str, float]
    more: Mapping[str, Mapping[str, Any]]
    baseline: str | None = None
    reference: str | None = None
    other_references: tuple[str, ...] = ()
    change: Mapping[str, float] = field(default_factory=dict)
    doubt: Mapping[str, float] = field(default_factory=dict)

    def verdict(self, probe: str) -> str:
        """``higher``, ``lower``, ``no clear difference``, or nothing where there is nothing to compare with.

        Beyond the doubt over images; whether a method helps, only several seeds say (`pipelines.compare`).
        """
        if probe not in self.change:
            return ""
        if abs(self.change[probe]) <= self.doubt[probe]:
            return "no clear difference"
        return "higher" if self.change[probe] > 0 else "lower"


@dataclass(frozen=True)
class AccuracyTable:
    """Rows measured alike: same training images, same test images, same protocol.

    probes: names in order. data, protocol: of eval.json.
    """

    probes: tuple[str, ...]
    rows: tuple[AccuracyRow, ...]
    data: Mapping[str, Any]
    protocol: Mapping[str, str]

    def notes(self) -> list[str]:
        """What the numbers say and do not say, one sentence each; the same in the page and in the terminal."""
        notes = []
        for row in self.rows:
            if row.change:
                verdicts = {row.verdict(probe) for probe in self.probes}
                parts = [
                    f"{probe_name(probe)} {100 * row.change[probe]:+.1f} ± {100 * row.doubt[probe]:.1f}"
                    + (f" ({row.verdict(probe)})" if len(verdicts) > 1 else "")
                    for probe in self.probes
                ]
                said = f": {verdicts.pop()}" if len(verdicts) == 1 else ""
                notes.append(f"{row.name} against {row.reference}, in points: {', '.join(parts)}{said}.")
                if row.other_references:
                    notes.append(
                        f"{row.name} is compared with {row.reference}, the first by name of several runs with random "
                        f"pairs and otherwise the same settings; others: {', '.join(row.other_references)}."
                    )
            elif row.baseline is None and row.reference is None:
                notes.append(
                    f"{row.name}: there is no evaluated run with random pairs and otherwise the same settings."
                )
        for kind in BASELINES:
            below = [
                f"{row.name} ({', '.join(map(probe_name, probes))})"
                for row in self.rows
                if row.baseline is None and (probes := self._not_above(row, kind))
            ]
            if below:
                notes.append(f"Not above {BASELINES[kind]}: {', '.join(below)}.")
        if any(more.get("top1_std") is not None for row in self.rows for more in row.more.values()):
            notes.append("In the table, ± is one standard deviation over repetitions of a probe on the same encoder.")
        notes.append(
            f"± of a difference is {CLEAR:g} standard errors, from the number of test images alone: how much another "
            "seed would change a run is not in it."
        )
        return notes

    def best(self, probe: str) -> float:
        """The highest top-1 of all rows."""
        return max(row.top1[probe] for row in self.rows if probe in row.top1)

    def _not_above(self, row: AccuracyRow, kind: str) -> list[str]:
        """Probes in which the run is not above the best baseline of this kind."""
        return [
            probe
            for probe in self.probes
            if any(row.top1[probe] <= other.top1.get(probe, -1) for other in self.rows if other.baseline == kind)
        ]


def probe_name(probe: str) -> str:
    """``knn20`` -> ``kNN 20``, ``semi1`` -> ``1 % of labels``, for people."""
    if probe.startswith("knn"):
        return f"kNN {probe.removeprefix('knn')}"
    if probe.startswith("semi"):
        return f"{probe.removeprefix('semi')} % of labels"
    return NAMES.get(probe, probe)


def used(more: Mapping[str, Any]) -> str:
    """What a probe used: its neighbours, what was chosen, or the images it learnt from."""
    if "k_used" in more:
        return f"{more['k_used']} neighbours" + ("" if more["k_used"] == more["k"] else ", all there are")
    if "strength" in more:
        return f"C = {more['strength']}" + ("" if more["converged"] else ", not converged")
    if "rates" in more:
        return f"learning rate {', '.join(f'{rate:g}' for rate in sorted(set(more['rates'])))}"
    return f"{more['num_train']} labelled images"


def cell(row: AccuracyRow, probe: str) -> str:
    """Top-1 in percent, with its standard deviation over repetitions where there is one."""
    if probe not in row.top1:
        return "–"
    spread = row.more[probe].get("top1_std")
    return percent(row.top1[probe]) + ("" if spread is None else f" ± {percent(spread)}")


def accuracy_tables(dataset: Dataset, without: Collection[str] = ()) -> list[AccuracyTable]:
    """One table for every kind of measurement among the dataset's evaluations; none when nothing was evaluated.

    without: runs that are left out, as ``runs/NAME``.
    """
    groups: dict[str, list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]] = {}
    for name in dataset.artifacts():
        parts = name.split("/")
        if len(parts) != 3 or "/".join(parts[:2]) in without:
            continue
        if not (evaluation := dataset.artifact(name)).is_complete or RESULT not in evaluation.files:
            continue
        result = decode_json(read_file(evaluation.path(RESULT)))
        identity = evaluation.identity
        alike = {key: value for key, value in identity.inputs.items() if not key.startswith("runs/")}
        settings = {
            key: value for key, value in identity.config.items() if key != "baselines"
        }  # no number depends on it
        key = repr((sorted(alike.items()), sorted(settings.items())))
        label = parts[1] if parts[2] == "eval" else f"{parts[1]}/{parts[2]}"
        groups.setdefault(key, []).append((label, dataset.artifact("/".join(parts[:2])).identity.config, result))
    return [make_table(group) for group in groups.values()]


def make_table(evaluations: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]) -> AccuracyTable:
    """evaluations: (name of the run, its config, its eval.json), all measured alike."""
    first = evaluations[0][2]
    baselines: list[AccuracyRow] = []
    for kind in BASELINES:
        for _, config, result in evaluations:
            if kind in result["probes"]:
                row = to_row(BASELINES[kind], baseline_of(kind, config, result), result["probes"][kind], kind)
                if row not in baselines:
                    baselines.append(row)
    configs = {name: config for name, config, _ in evaluations}
    runs = [to_row(name, method_of(config), result["probes"]["encoder"]) for name, config, result in evaluations]
    by_name = {row.name: row for row in runs}
    num_test = first["data"]["num_test"]
    compared = []
    for row in sorted(runs, key=lambda row: (not is_random(configs[row.name]), row.name)):
        references = find_references(row.name, configs)
        if not references:
            compared.append(row)
        elif references == [row.name]:
            compared.append(replace(row, reference=row.name))
        else:
            found = compare(row, by_name[references[0]], num_test)
            compared.append(replace(found, other_references=tuple(references[1:])))
    probes = tuple(probe["name"] for probe in first["probes"]["encoder"])
    protocol = max((result["protocol"] for _, _, result in evaluations), key=len)  # the one with the baselines
    return AccuracyTable(probes, (*baselines, *compared), first["data"], protocol)


def baseline_of(kind: str, config: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if kind == "pixels":
        return "no encoder"
    return f"{result['arch']}, {result['side_px']} px, seed {config['seed']}"


def to_row(name: str, method: str, probes: Sequence[Mapping[str, Any]], baseline: str | None = None) -> AccuracyRow:
    top1 = {probe["name"]: probe["top1"] for probe in probes}
    more = {
        probe["name"]: {key: value for key, value in probe.items() if key not in ("name", "top1")} for probe in probes
    }
    return AccuracyRow(name, method, top1, more, baseline)


def find_references(name: str, configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Runs with random pairs of the images themselves whose every other setting is that of run `name`, in order.

    Of those, only the ones whose crops keep their area by the same rule, where there are any. Such a run is its own.
    """

    def others(config: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in config.items() if key not in METHOD}

    if is_random(configs[name]):
        return [name]
    own = configs[name]
    found = sorted(each for each, config in configs.items() if is_random(config) and others(config) == others(own))
    return [each for each in found if configs[each].get("crop") == own.get("crop")] or found


def compare(row: AccuracyRow, reference: AccuracyRow, num_test: int) -> AccuracyRow:
    """Differences of top-1, and `CLEAR` standard errors of each.

    The two accuracies are treated as independent samples of `num_test` images; being measured on the same images they
    vary together, so a difference has to be larger here than a paired test would ask.
    """
    change = {probe: row.top1[probe] - reference.top1[probe] for probe in row.top1 if probe in reference.top1}
    doubt = {
        probe: CLEAR * math.sqrt(sum(p * (1 - p) for p in (row.top1[probe], reference.top1[probe])) / num_test)
        for probe in change
    }
    return replace(row, reference=reference.name, change=change, doubt=doubt)


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def summary_lines(dataset: Dataset) -> list[str]:
    """Verdicts of comparisons, and the tables as plain text for a terminal: the numbers and sentences of the page."""
    compared = comparison_names(dataset)
    tables = accuracy_tables(dataset, compared_runs(dataset))
    if not tables and not compared:
        return ["No run has been evaluated yet; 'viewkit evaluate DATASET/runs/NAME TEST_DATASET' does it."]
    lines: list[str] = []
    for name in compared:
        lines += [*([""] if lines else []), f"Comparison '{name}':"]
        lines += [f"- {printable(line)}" for line in verdict_lines(read_comparison(dataset, name))]
    for table in tables:
        lines += [*([""] if lines else []), headline(table.data), "", *text_table(table), ""]
        for note in table.notes():
            lines += textwrap.wrap(printable(note), WIDTH, initial_indent="- ", subsequent_indent="  ")
    return lines


def headline(data: Mapping[str, Any]) -> str:
    return (
        f"Accuracy in % on {data['num_test']} test images of {data['num_classes']} classes "
        f"(always answering the most frequent class: {percent(data['most_frequent_class'])})"
    )


def text_table(table: AccuracyTable) -> list[str]:
    """Aligned columns; the widths follow from the content."""
    head = ["", "", *(probe_name(probe) for probe in table.probes), "against random pairs"]
    body = [
        [
            printable(row.name),
            row.method,
            *(cell(row, probe) for probe in table.probes),
            row_verdict(row, table),
        ]
        for row in table.rows
    ]
    widths = [max(len(line[column]) for line in [head, *body]) for column in range(len(head))]
    numbers = range(2, 2 + len(table.probes))
    return [
        "  ".join(
            cell.rjust(widths[column]) if column in numbers else cell.ljust(widths[column])
            for column, cell in enumerate(line)
        ).rstrip()
        for line in [head, *body]
    ]


def row_verdict(row: AccuracyRow, table: AccuracyTable) -> str:
    """The last cell of a row: the first probe's difference in points and what it is worth."""
    probe = table.probes[0]
    if row.change:
        return f"{100 * row.change[probe]:+.1f} {row.verdict(probe)}"
    return "the reference" if row.reference == row.name else ""


def printable(text: str) -> str:
    """Control characters escaped, so that a name cannot move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
