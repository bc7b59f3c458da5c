"""The events of ``--json``: one JSON object a line on standard output. docs/events.md and the schema are made of this.

Every event has the field `event`, the name of its kind. Numbers of stages are in `numbers`, whatever they are called
there. Errors are no events: they are the one line on standard error, and the exit code.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Union

from viewkit.cli.console import print_json

Numbers = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all. EVENT: value of the field `event`."""

    EVENT: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class StepEvent(Event):
    """`viewkit run`: a step of the experiment begins."""

    EVENT: ClassVar[str] = "step"
    name: Annotated[str, "of the step, e.g. `pretrain random`"]
    place: Annotated[int, "its number, from 1"]
    of: Annotated[int, "how many steps there are"]


@dataclass(frozen=True, kw_only=True)
class StartEvent(Event):
    """A stage, or a part of one, begins or goes on."""

    EVENT: ClassVar[str] = "start"
    stage: Annotated[str, "name of the stage"]
    unit: Annotated[str, "what is counted: rows, steps, images ..."]
    total: Annotated[int, "units in all"]
    done: Annotated[int, "units that are done already"]


@dataclass(frozen=True, kw_only=True)
class ProgressEvent(Event):
    """Where a stage stands: twice a second at most, with every new line of metrics, and when the last unit is done."""

    EVENT: ClassVar[str] = "progress"
    stage: Annotated[str, "name of the stage"]
    unit: Annotated[str, "what is counted"]
    total: Annotated[int, "units in all"]
    done: Annotated[int, "units done"]
    rate: Annotated[float, "units per second since this command began"]
    left_s: Annotated[float | None, "seconds left for the stage at this rate; null while no unit is done"]
    whole_left_s: Annotated[
        float | None, "`viewkit run`: seconds left for the steps that can be estimated, this one among them; else null"
    ]
    whole_unknown: Annotated[int, "`viewkit run`: later steps whose time nobody knows yet"]
    rejects: Annotated[int | None, "rows rejected so far; null where the stage maps no rows"]
    memory_bytes: Annotated[int, "memory of this process and its workers"]
    gpu_bytes: Annotated[int | None, "highest memory that this process has had on its GPUs; null without one"]
    best_knn: Annotated[float | None, "best accuracy of the kNN probe so far, 0 ... 1; null where it does not run"]
    numbers: Annotated[Numbers, "the numbers reported last, e.g. loss, lr, knn_top1"]


@dataclass(frozen=True, kw_only=True)
class MessageEvent(Event):
    """A line for the person who watches."""

    EVENT: ClassVar[str] = "message"
    text: Annotated[str, "the line"]


@dataclass(frozen=True, kw_only=True)
class DoneEvent(Event):
    """A stage is complete."""

    EVENT: ClassVar[str] = "done"
    stage: Annotated[str, "name of the stage"]
    folder: Annotated[str, "what it wrote: folder of the column or artifact"]
    shards: Annotated[int, "complete shards of the column; 0 of an artifact"]
    written: Annotated[int, "shards, or the one artifact, that this command wrote; 0: all was there already"]
    seen: Annotated[int, "rows of the inputs = kept + rejected"]
    kept: Annotated[int, "rows of the column"]
    rejected: Annotated[Numbers, "reason -> rows"]
    numbers: Annotated[Numbers, "of an artifact: what its stage found"]
    bytes: Annotated[int, "size of all that is there now"]
    seconds: Annotated[float, "how long this command worked on the stage"]


@dataclass(frozen=True, kw_only=True)
class RunEvent(Event):
    """`viewkit compare`: a run of an arm is trained and evaluated."""

    EVENT: ClassVar[str] = "run"
    arm: Annotated[str, "name of the arm"]
    steps: Annotated[int, "steps of the training"]
    seed: Annotated[int, "seed of the run"]
    done: Annotated[int, "runs done"]
    of: Annotated[int, "how many runs there are"]
    top1: Annotated[Numbers, "probe -> accuracy, 0 ... 1"]
    seconds: Annotated[float, "how long it took; next to nothing where it was there already"]


@dataclass(frozen=True, kw_only=True)
class NextEvent(Event):
    """A command is done, and this one usually follows."""

    EVENT: ClassVar[str] = "next"
    command: Annotated[str, "the command line"]


@dataclass(frozen=True, kw_only=True)
class RemovedEvent(Event):
    """``--redo``: what the command would replace, and what was made from it, is deleted (with --dry-run: would be)."""

    EVENT: ClassVar[str] = "removed"
    names: Annotated[list[Any], "columns and artifacts of the dataset"]
    dry_run: Annotated[bool, "true: nothing was deleted"]


@dataclass(frozen=True, kw_only=True)
class PlanEvent(Event):
    """``--dry-run``: what a stage would do."""

    EVENT: ClassVar[str] = "plan"
    stage: Annotated[str, "name of the stage"]
    numbers: Annotated[Numbers, "e.g. reads, device, done, shards_left, rows_left, steps, estimated_s, waits_for"]


@dataclass(frozen=True, kw_only=True)
class TotalEvent(Event):
    """`viewkit run --dry-run`: all plans together."""

    EVENT: ClassVar[str] = "total"
    estimated_s: Annotated[float, "seconds of all stages that can be measured now"]
    estimated_bytes: Annotated[int, "bytes of their columns"]
    waiting: Annotated[int, "stages that wait for what earlier ones write"]
    cost: Annotated[str, "what the paper's authors used"]


@dataclass(frozen=True, kw_only=True)
class ResultEvent(Event):
    """`viewkit run`: a published number beside yours, in percent."""

    EVENT: ClassVar[str] = "result"
    name: Annotated[str, "of the run"]
    metric: Annotated[str, "e.g. linear top1"]
    published: Annotated[float, "the paper's"]
    yours: Annotated[float | None, "null: not measured"]
    difference: Annotated[float | None, "yours less published"]
    doubt: Annotated[
        float | None, "two standard errors of yours, from the number of test images alone; null: not measured"
    ]


@dataclass(frozen=True, kw_only=True)
class RehearsedEvent(Event):
    """`viewkit run --rehearse`: the miniature went through."""

    EVENT: ClassVar[str] = "rehearsed"
    steps: Annotated[int, "steps of the chain"]
    seconds: Annotated[float, "how long it took"]
    replaced: Annotated[list[Any], "what stood in for what is not there"]


EVENTS: tuple[type[Event], ...] = (
    StepEvent, StartEvent, ProgressEvent, MessageEvent, DoneEvent, RunEvent, NextEvent, RemovedEvent, PlanEvent,
    TotalEvent, ResultEvent, RehearsedEvent,
)  # fmt: skip
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}


def emit(event: Event) -> None:
    """Print it."""
    print_json({"event": event.EVENT, **asdict(event)})


def schema_of(kind: type[Event]) -> dict[str, Any]:
    """JSON Schema of one kind of event."""
    hints = typing.get_type_hints(kind, include_extras=True)
    properties: dict[str, Any] = {"event": {"const": kind.EVENT}}
    for each in fields(kind):
        hint, text = typing.get_args(hints[each.name])[:2]
        properties[each.name] = {"type": _types_of(hint), "description": text}
    return {
        "title": kind.EVENT,
        "description": " ".join((kind.__doc__ or "").split()),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def schema() -> dict[str, Any]:
    """JSON Schema of any event."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An event of viewkit's --json",
        "oneOf": [schema_of(kind) for kind in EVENTS],
    }


def _types_of(hint: Any) -> str | list[str]:
    union = typing.get_origin(hint) in (Union, types.UnionType)
    members = typing.get_args(hint) if union else (hint,)
    found = ["null" if each is type(None) else JSON_TYPES[typing.get_origin(each) or each] for each in members]
    return found if len(found) > 1 else found[0]


def problem_of(value: Mapping[str, Any]) -> str | None:
    """Why this is no event as documented, or None where it is one."""
    kinds = {kind.EVENT: kind for kind in EVENTS}
    kind = kinds.get(str(value.get("event")))
    if kind is None:
        return f"event is {value.get('event')!r}; the kinds are {', '.join(kinds)}"
    properties = schema_of(kind)["properties"]
    if set(value) != set(properties):
        return f"{kind.EVENT}: its fields are {', '.join(sorted(value))}; documented: {', '.join(sorted(properties))}"
    for name in sorted(set(value) - {"event"}):
        wanted = properties[name]["type"]
        if not _is_of(value[name], [wanted] if isinstance(wanted, str) else wanted):
            return f"{kind.EVENT}: {name} is {value[name]!r}; documented: {wanted}"
    return None


def _is_of(value: Any, wanted: list[str]) -> bool:
    if value is None or isinstance(value, bool):
        return ("null" if value is None else "boolean") in wanted
    found = JSON_TYPES.get(type(value))
    return found in wanted or (found == "integer" and "number" in wanted)
