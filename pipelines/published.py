"""What an experiment measured beside what the paper prints, and what a dataset keeps of the experiment that made it.

Below the stages, so that the page can show it: experiments stand above them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from viewkit.shards import schema
from viewkit.shards.document import read_document, write_document
from viewkit.shards.errors import DataError
from viewkit.shards.files import make_folder, read_file

if TYPE_CHECKING:
    from viewkit.shards.dataset import Dataset

ERRORS = 2.0
"""Standard errors that a doubt is."""
RESULT, FOLDER = "eval.json", "experiments"
CORRUPTED = ("mce_unnormalised", "mce_alexnet")
"""Means over corruptions, which eval.json has apart from the probes' accuracies."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A number of the paper. run: the run it is compared with. metric: what `evaluate` writes, e.g. ``linear``.

    value: in percent. of: which of the metric's numbers, e.g. ``top5`` or ``mce_unnormalised``. folder: of the
    evaluation.
    """

    run: str
    metric: str
    value: float
    of: str = "top1"
    folder: str = "eval"


@dataclass(frozen=True)
class Record:
    """An experiment as its dataset keeps it. table: its place in the paper. data: what the source should hold."""

    name: str
    title: str
    paper: str
    table: str
    data: str
    published: tuple[Published, ...]


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


def write_record(record: Record, dataset: "Dataset") -> None:
    """Keep the experiment in ``experiments/NAME.json`` of the dataset; a record of another state is replaced."""
    folder = dataset.path / FOLDER
    make_folder(folder)
    write_document(folder / f"{record.name}.json", asdict(record))


def read_records(dataset: "Dataset") -> list[Record]:
    """The experiments that the dataset was made for, by name. `DataError` for a damaged record."""
    found = []
    for path in sorted((dataset.path / FOLDER).glob("*.json")):
        remedy = "delete it and run the experiment again; it goes on where it stopped"
        content = read_document(path, remedy)
        schema.require(content, dict.fromkeys(("name", "title", "paper", "table", "data"), schema.text), path, remedy)
        try:
            published = tuple(Published(**each) for each in content.pop("published"))
            found.append(Record(**content, published=published))
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: damaged, it is no record of an experiment; {remedy}") from error
    return found


def compare_published(published: Sequence[Published], dataset: "Dataset") -> list[Comparison]:
    """A line for every published number, then for the gain of every run over the first run that has the same number."""
    return compare(published, {entry: _measured(entry, dataset) for entry in published})


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


def _measured(entry: Published, dataset: "Dataset") -> Measured | None:
    """None where the evaluation is not complete, or has no such number."""
    from viewkit.shards.codecs import decode_json

    name = f"runs/{entry.run}/{entry.folder}"
    if name not in dataset.artifacts() or not (evaluation := dataset.artifact(name)).is_complete:
        return None
    return measured_in(entry, decode_json(read_file(evaluation.path(RESULT))))


def measured_in(entry: Published, result: Mapping[str, Any]) -> Measured | None:
    """The entry's number in the content of an eval.json; None where it is not there."""
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
