"""`viewkit status`: columns, shards done, rows, rejects by reason, artifacts, identities, and what is stale."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewkit.cli.console import print_json, printable, say
from viewkit.cli.machine import size_text
from viewkit.cli.progress import CURVES, KNN, number
from viewkit.cli.sparkline import bars_for, sparkline
from viewkit.shards.errors import ConfigError, DataError, MissingError
from viewkit.shards.stores.mounts import mirror_of

if TYPE_CHECKING:
    from viewkit.shards.column import Column
    from viewkit.shards.dataset import Dataset

LEAST_S = 0.1
"""Shortest time between two looks."""


def status(
    dataset: Annotated[str, typer.Argument(help="folder of the dataset", metavar="DATASET")],
    rejects: Annotated[bool, typer.Option("--rejects", help="List every rejected row with its reason.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", help="with --watch: seconds between two looks")] = 5.0,
    looks: Annotated[
        int | None, typer.Option("--looks", help="with --watch: end after so many looks", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (with --watch: one a look).")] = False,
) -> None:
    """What a dataset holds: columns, shards done, rows, rejects by reason, artifacts, identities; what is stale, made
    from other inputs than there are now; and how unfinished trainings stand."""
    from viewkit.shards.dataset import Dataset

    if not watch:
        found = facts_of(Dataset(dataset))
        print_json(found) if as_json else say("\n".join(lines_of(found, rejects)))
        return
    if every < LEAST_S or (looks is not None and looks < 1):
        raise ConfigError(f"--every is {every:g} and --looks is {looks}; needed at least {LEAST_S:g} s and 1 look")
    try:
        watch_dataset(lambda: facts_of(Dataset(dataset)), rejects, every, looks, as_json)
    except KeyboardInterrupt:
        return  # the way to end it


def watch_dataset(
    look: Callable[[], dict[str, Any]], rejects: bool, every: float, looks: int | None, as_json: bool
) -> None:
    """Show what `look` gives every so many seconds: in place on a terminal, else as lines or JSON objects."""
    if as_json or not sys.stdout.isatty():
        show = print_json if as_json else lambda found: say("\n".join([*lines_of(found, rejects), ""]))
        _repeat(look, show, every, looks)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:

        def rewrite(found: dict[str, Any]) -> None:
            ends = f"\n{time.strftime('%H:%M:%S')}, every {every:g} s; Ctrl-C ends"
            live.update(Text(printable("\n".join(lines_of(found, rejects)) + ends)), refresh=True)

        _repeat(look, rewrite, every, looks)


def _repeat(
    look: Callable[[], dict[str, Any]], show: Callable[[dict[str, Any]], None], every: float, looks: int | None
) -> None:
    done = 0
    while True:
        try:
            found = look()
        except MissingError:
            found = look()  # something was deleted after it had been listed; what is gone for good is missing again
        show(found)
        done += 1
        if done == looks:
            return
        time.sleep(every)


def facts_of(dataset: "Dataset") -> dict[str, Any]:
    """All that is known, as JSON values. `DataError` where there is no dataset."""
    columns = [column_status(dataset, dataset.column(name)) for name in dataset.columns()]
    artifacts = [artifact_status(dataset, name) for name in dataset.artifacts()]
    if not columns and not artifacts:
        raise DataError(f"{dataset.path}: there is no dataset; make one with 'viewkit pack SOURCE {dataset.path}'")
    return {"dataset": str(dataset.path), "columns": columns, "artifacts": artifacts}


def lines_of(found: dict[str, Any], rejects: bool) -> list[str]:
    """The facts for people."""
    columns, artifacts = found["columns"], found["artifacts"]
    rows = [
        [
            entry["name"],
            f"{entry['shards_done']}/{entry['shards']}",
            str(entry["kept"]),
            _reasons(entry["rejected"]),
            size_text(float(entry["bytes"])),
            f"{entry['stage']} v{entry['version']}",
            entry["identity"][:12],
            f"stale: {entry['stale']}" if entry["stale"] else _grown(entry),
        ]
        for entry in columns
    ]
    lines = [
        str(found["dataset"]),
        "",
        *table_lines(["column", "shards", "rows", "rejected", "bytes", "stage", "identity", ""], rows),
    ]
    if artifacts:
        head = ["artifact", "state", "bytes", "stage", "identity", ""]
        states = [[each["name"], _state(each), _bytes(each), *_made(each), _curve(each)] for each in artifacts]
        lines += ["", *table_lines(head, states)]
    if rejects:
        lines.append("")
        for entry in columns:
            lines += [
                f"{entry['name']}: {each['key']}: {each['reason']}: {each['detail']}" for each in entry["rejects"]
            ]
    stale = [each["name"] for each in (*columns, *artifacts) if each["stale"]]
    if stale:
        lines += ["", f"stale: {', '.join(stale)}; repeat the commands that write them, each with --redo"]
    return lines


def _grown(entry: dict[str, Any]) -> str:
    return f"lacks what was added to '{entry['grown'][0]}'; repeat its command" if entry["grown"] else ""


def _state(entry: dict[str, Any]) -> str:
    state = "complete" if entry["complete"] else "unfinished"
    if entry["grown"]:
        state += f", of before '{entry['grown'][0]}' grew"
    return f"{state}, stale: {entry['stale']}" if entry["stale"] else state


def _bytes(entry: dict[str, Any]) -> str:
    return size_text(float(entry["bytes"])) if entry["complete"] else ""


def _made(entry: dict[str, Any]) -> list[str]:
    return [f"{entry['stage']} v{entry['version']}", entry["identity"][:12]]


def _curve(entry: dict[str, Any]) -> str:
    """How the loss of a training that is not complete went so far, and its kNN accuracy."""
    metrics = entry["metrics"]
    if metrics is None or entry["complete"]:
        return ""
    said = f"step {metrics['step']}"
    bars = bars_for(sys.stdout.encoding)
    for name, values in metrics["curves"].items():
        best = f", best {number(max(values))}" if name == KNN else ""
        said += f"  {'kNN' if name == KNN else name} {sparkline(values, bars=bars)} {number(values[-1])}{best}"
    return said


def column_status(dataset: "Dataset", column: "Column") -> dict[str, Any]:
    """The column as JSON values; unfinished columns count the shards that are complete."""
    facts = list(column.facts(column.complete_shards()))
    found = [reject for shard in facts for reject in shard.rejects]
    identity = column.identity
    return {
        "name": column.name,
        "stage": identity.stage,
        "version": identity.version,
        "config": dict(identity.config),
        "inputs": dict(identity.inputs),
        "identity": identity.digest,
        "shards": column.num_shards,
        "shards_done": len(facts),
        "seen": sum(shard.seen for shard in facts),
        "kept": sum(shard.kept for shard in facts),
        "rejected": dict(Counter(reject.reason for reject in found)),
        "rejects": [{"key": each.key, "reason": each.reason, "detail": each.detail} for each in found],
        "bytes": sum(shard.bytes for shard in facts),
        "stale": dataset.staleness(column.name),
        "grown": dataset.grown_since(column.name),
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
        "bytes": sum(each["bytes"] for each in artifact.receipt["files"].values()) if artifact.is_complete else 0,
        "stale": dataset.staleness(name),
        "grown": dataset.grown_since(name),
        "metrics": metrics_of(dataset, name),
    }


def metrics_of(dataset: "Dataset", name: str) -> dict[str, Any] | None:
    """The last step of a training, and how loss and kNN accuracy went; None of what is no training."""
    from viewkit.pipelines.training.metrics import METRICS, read_metrics

    path, artifact = dataset.path / name / METRICS, dataset.artifact(name)
    if mirror_of(path) is not None and artifact.is_complete and METRICS in artifact.files:
        artifact.path(METRICS)  # brings it
    lines = read_metrics(path) if path.is_file() else []
    if not lines:
        return None
    curves = {name: [float(value) for line in lines if (value := line.get(name)) is not None] for name in CURVES}
    return {"step": lines[-1]["step"], "curves": {name: values for name, values in curves.items() if values}}


def table(header: list[str], rows: list[list[str]]) -> None:
    """Plain aligned columns, the same on a terminal and in a file."""
    say("\n".join(table_lines(header, rows)))


def table_lines(header: list[str], rows: list[list[str]]) -> list[str]:
    """The same, as lines."""
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]


def _reasons(rejected: dict[str, int]) -> str:
    total = sum(rejected.values())
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(rejected.items()))
    return f"{total} ({reasons})" if total else "0"
