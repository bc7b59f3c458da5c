"""`viewkit inspect`: everything a dataset knows about one row."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewkit.cli.console import print_json, say
from viewkit.shards.errors import DataError

if TYPE_CHECKING:
    from viewkit.shards.column import Column

SHOWN = ("json", "cls", "txt")


def inspect(
    dataset: Annotated[str, typer.Argument(help="folder of the dataset", metavar="DATASET")],
    key: Annotated[str, typer.Argument(help="key of the row, e.g. from 'viewkit status --rejects'", metavar="KEY")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """What every column holds for one row, or why it rejected it."""
    from viewkit.shards.dataset import Dataset

    found = Dataset(dataset)
    if not found.columns():
        raise DataError(f"{dataset}: there is no dataset; make one with 'viewkit pack SOURCE {dataset}'")
    facts = {name: row_facts(found.column(name), key) for name in found.columns()}
    if all(fact is None for fact in facts.values()):
        raise DataError(f"{dataset}: no column knows a row '{key}'; 'viewkit status {dataset} --rejects' lists rejects")
    if as_json:
        print_json(facts)
        return
    for name, fact in facts.items():
        say(f"{name}: {'absent' if fact is None else ''}")
        for item, value in (fact or {}).items():
            say(f"  {item}: {value}")


def row_facts(column: "Column", key: str) -> dict[str, Any] | None:
    """Field -> its text, or its size in bytes; or the reject; None when the column never saw the key."""
    place = column.place_of.get(key)
    if place is None:
        reject = column.rejects.get(key)
        return None if reject is None else {"rejected": reject.reason, "detail": reject.detail}
    return {
        name: data.decode("utf-8", "backslashreplace").strip() if name in SHOWN else f"{len(data)} bytes"
        for name, data in column.fields(place).items()
    }
