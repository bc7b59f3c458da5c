"""What a dataset's experiments measured beside what their papers print."""

from dataclasses import dataclass

from viewkit.pipelines.published import ERRORS, Comparison, compare_published, read_records
from viewkit.pipelines.report.findings import FoundTable
from viewkit.shards.dataset import Dataset


@dataclass(frozen=True)
class ShownExperiment:
    """origin: where the numbers were printed and on what, for people. table: None where nothing is published."""

    name: str
    title: str
    origin: str
    table: FoundTable | None


def show_experiments(dataset: Dataset) -> list[ShownExperiment]:
    """The experiments that `viewkit run` made the dataset for, with their tables."""
    found = []
    for record in read_records(dataset):
        rows = tuple(row_of(each) for each in compare_published(record.published, dataset))
        origin = ", ".join(part for part in (record.paper, record.table) if part)
        note = (
            f"In percent, published on {record.data}. ± is {ERRORS:g} standard errors from the number of your test "
            "images alone; another seed may move it more, and other images are another measurement."
        )
        columns = ("run", "probe", "published", "yours", "difference")
        table = FoundTable("Published / yours", note, columns, rows) if rows else None
        found.append(ShownExperiment(record.name, record.title, origin, table))
    return found


def row_of(each: Comparison) -> tuple[str, ...]:
    """One line of the table; gains have a sign."""
    sign = "+" if " less " in each.name else ""
    if each.yours is None:
        return (each.name, each.metric, f"{each.published:{sign}.1f}", "not measured", "")
    difference = f"{each.difference:+.1f} ± {each.doubt:.1f}"
    return (each.name, each.metric, f"{each.published:{sign}.1f}", f"{each.yours.value:{sign}.1f}", difference)
