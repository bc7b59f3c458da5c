"""What an experiment measured beside what the paper prints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from viewkit.pipelines.experiments.experiment import Experiment, Published
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import read_file

ERRORS = 2.0
"""Standard errors that a doubt is."""
RESULT = "eval.json"
CORRUPTED = ("mce_unnormalised", "mce_alexnet")
"""Means over corruptions, which eval.json has apart from the probes' accuracies."""


@dataclass(frozen=True)
class Measured:
    """value: in percent. error: one standard error of it, from the number of test images alone, in points."""

    value: float
    error: float


@dataclass(frozen=True)
class Comparison:
    """One line of the table. name: of the run, or ``RUN less REFERENCE``. yours: None where it was not measured."""

    name: str
    metric: str
    published: float
    yours: Measured | None

    @property
    def difference(self) -> float | None:
        return None if self.yours is None else self.yours.value - self.published

    @property
    def doubt(self) -> float | None:
        return None if self.yours is None else ERRORS * self.yours.error


def compare_published(experiment: Experiment, dataset: Dataset) -> list[Comparison]:
    """A line for every published number, then for the gain of every run over the first run that has the same number."""
    return compare(experiment.published, {entry: _measured(entry, dataset) for entry in experiment.published})


def compare(published: Sequence[Published], measured: Mapping[Published, Measured | None]) -> list[Comparison]:
    """The same of numbers at hand; None for what was not measured."""
    lines = [Comparison(entry.run, _label(entry), entry.value, measured[entry]) for entry in published]
    for entry in published:
        first = next(each for each in published if _label(each) == _label(entry))
        if first.run == entry.run:
            continue
        ours, reference = measured[entry], measured[first]
        gain = None
        if ours is not None and reference is not None:
            gain = Measured(ours.value - reference.value, math.hypot(ours.error, reference.error))
        lines.append(Comparison(f"{entry.run} less {first.run}", _label(entry), entry.value - first.value, gain))
    return lines


def _label(entry: Published) -> str:
    """``linear``, ``linear top5``, ``linear (folder)``."""
    shown = entry.metric + ("" if entry.of == "top1" else f" {entry.of}")
    return shown if entry.folder == "eval" else f"{shown} ({entry.folder})"


def _measured(entry: Published, dataset: Dataset) -> Measured | None:
    """None where the evaluation is not complete, or has no such number."""
    name = f"runs/{entry.run}/{entry.folder}"
    if name not in dataset.artifacts() or not (evaluation := dataset.artifact(name)).is_complete:
        return None
    result: Mapping[str, Any] = decode_json(read_file(evaluation.path(RESULT)))
    if entry.of in CORRUPTED:
        own = result.get("corruptions", {}).get("probes", {}).get("encoder", {}).get(entry.metric, {})
        error = own.get(entry.of)
        return None if error is None else of_share(float(error), int(result["data"]["num_test"]))
    for probe in result["probes"]["encoder"]:
        if probe["name"] == entry.metric and probe.get(entry.of) is not None:
            return of_share(float(probe[entry.of]), int(result["data"]["num_test"]))
    return None


def of_share(share: float, count: int) -> Measured:
    """A share of `count` images, and its standard error sqrt(p (1 - p) / n); 0 for what is no share."""
    return Measured(100 * share, 100 * math.sqrt(max(share * (1 - share), 0) / count))


def table_lines(comparisons: list[Comparison]) -> list[str]:
    """The table as aligned text, in percent, with what its doubt does and does not hold."""
    if not comparisons:
        return []
    rows = [["", "", "published", "yours", "difference"]]
    for each in comparisons:
        sign = "+" if " less " in each.name else ""
        yours, difference = "not measured", ""
        if each.yours is not None:
            yours, difference = f"{each.yours.value:{sign}.1f}", f"{each.difference:+.1f} ± {each.doubt:.1f}"
        rows.append([each.name, each.metric, f"{each.published:{sign}.1f}", yours, difference])
    widths = [max(len(row[place]) for row in rows) for place in range(5)]

    def aligned(row: list[str]) -> str:
        pairs = list(zip(row, widths, strict=True))
        return "  ".join([cell.ljust(w) for cell, w in pairs[:2]] + [cell.rjust(w) for cell, w in pairs[2:]]).rstrip()

    lines = [aligned(row) for row in rows]
    note = f"± is {ERRORS:g} standard errors from the number of your test images alone; another seed may move it more."
    return [*lines, note]
