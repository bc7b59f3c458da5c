"""What a dataset's numbers come to, in a few sentences at the top of the page; each is said again, with its numbers,
further down."""

from collections.abc import Sequence
from dataclasses import dataclass

from viewkit.pipelines.report.accuracy import AccuracyTable, probe_name
from viewkit.pipelines.report.comparisons import ShownComparison
from viewkit.pipelines.report.inventory import Inventory

WARNING = "warning: "


@dataclass(frozen=True)
class Verdict:
    """what: whom it is about. said: what is found. word: ``helps``, ``hurts``, of single runs ``higher``, ``lower``, or
    nothing, for its colour. place: id of the section that has the numbers."""

    what: str
    said: str
    place: str
    word: str = ""


def find_verdicts(
    inventory: Inventory,
    comparisons: Sequence[ShownComparison],
    tables: Sequence[AccuracyTable],
    filter_lines: Sequence[str],
) -> list[Verdict]:
    """Comparisons over seeds first, then runs of one seed, then what speaks against the pairs or is unfinished."""
    found = [each for item in comparisons for each in comparison_verdicts(item)]
    for table in tables:
        for row in table.rows:
            for probe in table.probes[:1] if row.change else ():
                said = f"{row.verdict(probe)}, {100 * row.change[probe]:+.1f} ± {100 * row.doubt[probe]:.1f} points"
                word = row.verdict(probe) if row.verdict(probe) in ("higher", "lower") else ""
                what = f"{row.name} against {row.reference}, {probe_name(probe)}, one seed"
                found.append(Verdict(what, said, "accuracy", word))
    if not found:
        found.append(Verdict("Do these pairs help?", unanswered(inventory, tables), "accuracy"))
    found += [
        Verdict("The filters", line.removeprefix(WARNING), "pairs") for line in filter_lines if line.startswith(WARNING)
    ]
    unfinished = [part.name for part in inventory.parts if not part.is_complete]
    if unfinished:
        found.append(Verdict("Unfinished", ", ".join(unfinished), "dataset"))
    return found


def comparison_verdicts(shown: ShownComparison) -> list[Verdict]:
    """One line a verdict, with all arms that it was given to; a probe is named where another says something else."""
    said: dict[str, dict[str, list[str]]] = {}
    colours, probes = {}, list(dict.fromkeys(each.probe for each in shown.verdicts))
    for each in shown.verdicts:
        said.setdefault(each.verdict, {}).setdefault(each.compared, []).append(each.probe)
        colours[each.verdict] = each.colour
    return [
        Verdict(
            f"{shown.name}: "
            + "; ".join(arm if own == probes else f"{arm} ({', '.join(own)})" for arm, own in arms.items()),
            verdict,
            "comparisons",
            colours[verdict],
        )
        for verdict, arms in said.items()
    ]


def unanswered(inventory: Inventory, tables: Sequence[AccuracyTable]) -> str:
    """Why nothing here says whether the pairs help."""
    if tables:
        return "not known: no evaluated run has random pairs and otherwise the same settings as another one"
    return "not known: no run has been evaluated" if inventory.runs else "not known: nothing has been trained on them"
