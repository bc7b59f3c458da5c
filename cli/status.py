"""`viewkit status`: columns, shards done, rows, rejects by reason, artifacts, identities."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewkit.cli.console import print_json, say
from viewkit.shards.errors import DataError

if TYPE_CHECKING:
    from viewkit.shards.column import Column
    from viewkit.shards.dataset import Dataset


def status(
    dataset: Annotated[str, typer.Argument(help="folder of the dataset", metavar="DATASET")],
    rejects: Annotated[bool, typer.Option("--rejects", help="List every rejected row with its reason.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """What a dataset holds: columns, shards done, rows, rejects by reason, artifacts, identities."""
    from viewkit.shards.dataset import Dataset

    found = Dataset(dataset)
    columns = [column_status(found.column(name)) for name in found.columns()]
    artifacts = [artifact_status(found, name) for name in found.artifacts()]
    if not columns and not artifacts:
        raise DataError(f"{dataset}: there is no dataset; make one with 'viewkit pack SOURCE {dataset}'")
    if as_json:
        print_json({"dataset": str(found.path), "columns": columns, "artifacts": artifacts})
        return
    say(f"{found.path}")
    say("")
    table(
        ["column", "shards", "rows", "rejected", "bytes", "stage", "identity"],
        [
            [
                entry["name"],
                f"{entry['shards_done']}/{entry['shards']}",
                str(entry["kept"]),
                _reasons(entry["rejected"]),
                _size(float(entry["bytes"])),
                f"{entry['stage']} v{entry['version']}",
                entry["identity"][:12],
            ]
            for entry in columns
        ],
    )
    if artifacts:
        say("")
        table(
            ["artifact", "state", "stage", "identity"],
            [
                [
                    entry["name"],
                    "complete" if entry["complete"] else "unfinished",
                    f"{entry['stage']} v{entry['version']}",
                    entry["identity"][:12],
                ]
                for entry in artifacts
            ],
        )
    if rejects:
        say("")
        for entry in columns:
            for reject in entry["rejects"]:
                say(f"{entry['name']}: {reject['key']}: {reject['reason']}: {reject['detail']}")


def column_status(column: "Column") -> dict[str, Any]:
    """The column as JSON values; unfinished columns count the shards that are complete."""
    receipts = [column.receipt(shard) for shard in column.complete_shards()]
    found = [reject for receipt in receipts for _, reject in receipt.rejects]
    identity = column.identity
    return {
        "name": column.name,
        "stage": identity.stage,
        "version": identity.version,
        "config": dict(identity.config),
        "inputs": dict(identity.inputs),
        "identity": identity.digest,
        "shards": column.num_shards,
        "shards_done": len(receipts),
        "seen": sum(receipt.seen for receipt in receipts),
        "kept": sum(len(receipt.rows) for receipt in receipts),
        "rejected": dict(Counter(reject.reason for reject in found)),
        "rejects": [{"key": each.key, "reason": each.reason, "detail": each.detail} for each in found],
        "bytes": sum(receipt.bytes for receipt in receipts),
    }


def artifact_status(dataset: "Dataset", name: str) -> dict[str, Any]:
    artifact = dataset.artifact(name)
    identity = artifact.identity
    return {
        "name": name,
        "stage": identity.stage,
        "version": identity.version,
        "config": dict(identity.config),
        "inputs": dict(identity.inputs),
        "identity": identity.digest,
        "complete": artifact.is_complete,
        "numbers": artifact.numbers if artifact.is_complete else {},
    }


def table(header: list[str], rows: list[list[str]]) -> None:
    """Plain aligned columns, the same on a terminal and in a file."""
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]
    for row in [header, *rows]:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _reasons(rejected: dict[str, int]) -> str:
    total = sum(rejected.values())
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(rejected.items()))
    return f"{total} ({reasons})" if total else "0"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
