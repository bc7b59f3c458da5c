"""The audit's numbers as tables for people: for the page, the benchmark and the console."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """rows: cells as text; the first is the row's name. note: what the numbers mean, in a sentence."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [f"**{self.title}**", "", "| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, "", self.note])


SHARES = {
    "below_k_sc": "SC below k_SC",
    "below_k_al": "AL below k_AL",
    "below_both": "both",
    "removed_sc": "removed by SC",
    "removed_al": "then by AL",
    "surviving": "surviving",
    "relaxed_sc": "rows where SC relaxed",
    "relaxed_al": "rows where AL relaxed",
}


def audit_tables(found: Mapping[str, Any]) -> list[Table]:
    """The tables of an ``audit.json``, ready to be shown."""
    truths = [truth_table(each) for each in found["ground_truth"]]
    return [filter_table(found), sign_table(found), *selection_tables(found["selections"]), *truths]


def filter_table(found: Mapping[str, Any]) -> Table:
    filtered = found["filtered"]
    lines = [("all", filtered["all"]), *((f"{r}", shares) for r, shares in enumerate(filtered["rounds"]))]
    return Table(
        "What the filters take away",
        f"In % of the pairs, the last two in % of the rows. k_SC {found['k_sc']:g}, k_AL {found['k_al']:g}, gamma "
        f"{found['gamma']:g}; {found['pairs']:,} pairs of {found['images']:,} images. A filter relaxes to the "
        f"best pair that a row has; the highest SC of all pairs is {found['highest_consistency']:.3f}.",
        ("round", *SHARES.values()),
        tuple((name, *(f"{100 * shares[key]:.1f}" for key in SHARES)) for name, shares in lines),
    )


def sign_table(found: Mapping[str, Any]) -> Table:
    """Rank correlations, with the signs the paper reports."""
    rows = [("colour distance", found["correlation"]["colour"], "AL: +")]
    rows += [(f"{name} distance", found["correlation"][name], "SC: -") for name in found["high_level"]["measured"]]
    return Table(
        "Do the indicators follow the distances?",
        f"Spearman's rank correlation. High-level distance of the heat maps: {found['high_level']['about']}.",
        ("distance", "Semantic Consistency", "Alignment Level", "sign in the paper"),
        tuple((name, signed(each["consistency"]), signed(each["level"]), sign) for name, each, sign in rows),
    )


BAD = {
    "no_shared_things": ("False positives", "pairs whose views share no countable object"),
    "near_duplicate": ("Near-duplicates", "pairs of nearly the same crop"),
}


def selection_tables(selections: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """A table for each kind of bad pairs that is known."""
    for kind in (kind for kind in BAD if kind in selections[0]["bad"]):  # a JSON file has them in another order
        title, about = BAD[kind]
        yield Table(
            f"{title} before and after every selection",
            f"{about.capitalize()}, in % of the pairs that a selection takes, with standard errors over groups of "
            "images; the difference to any pair (stored) in points. Placebo: the same rule, with what it reads handed "
            "to other pairs of the image. IoU: mean overlap of the crops taken. Kept: pairs of a row that one is taken "
            "of. Relaxed: rows without a pair as the rule wants it, in %.",
            (
                "selection",
                title.lower(),
                "standard error",
                "against any pair",
                "standard error",
                "placebo",
                "IoU",
                "kept",
                "relaxed",
            ),
            tuple(_selection_row(each, each["bad"][kind]) for each in selections),
        )


def _selection_row(each: Mapping[str, Any], bad: Mapping[str, float | None]) -> tuple[str, ...]:
    difference = None if bad["difference_share"] is None else f"{100 * bad['difference_share']:+.1f}"
    return (
        each["name"].replace("_", " "),
        percent(bad["share"]),
        percent(bad["error"]),
        difference or "-",
        percent(bad["difference_error"]),
        percent(bad["placebo_share"]),
        number(each["iou"]),
        f"{each['kept']:.1f}",
        percent(each["relaxed"]),
    )


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


RANKED = (
    ("ROC area", "roc_area"),
    ("standard error", "roc_error"),
    ("precision", "precision"),
    ("recall", "recall"),
    ("found", "found"),
)
RANKED_APART = (("ROC area apart", "roc_area_apart"), ("standard error apart", "roc_error_apart"))


def truth_table(answer: Mapping[str, Any]) -> Table:
    share = f"{100 * answer['flagged'] / answer['pairs']:.1f} %"
    columns: tuple[tuple[str, str], ...] = RANKED
    apart = ""
    if answer["apart"] is not None:
        columns = (*RANKED, *RANKED_APART)
        apart = (
            f" Apart: the same among the {answer['apart']:,} pairs whose crops share no area, of which "
            f"{answer['true_apart']:,} have; there overlap knows nothing."
        )
    return Table(
        f"Telling which pairs have: {answer['name'].replace('_', ' ')}",
        f"{answer['true']:,} of {answer['pairs']:,} pairs: {answer['about']}. Precision and recall where every rule "
        f"flags {answer['flagged']:,} pairs ({share}), as many as the "
        "indicator at its threshold; found: share of them among as many flagged pairs as there are of them." + apart,
        ("rule", *(name for name, _ in columns)),
        tuple((each["name"].replace("_", " "), *(number(each[key]) for _, key in columns)) for each in answer["rules"]),
    )


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"


def markdown(tables: Sequence[Table]) -> str:
    return "\n\n".join(table.markdown() for table in tables)
