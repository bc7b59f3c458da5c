"""`viewkit schema`: JSON Schemas of experiments and config files, so that editors complete and check them."""

from typing import Annotated, Any

import typer

from viewkit.cli.chain import COMMANDS
from viewkit.cli.command import StageCommand
from viewkit.cli.commands import COMPARE, PIPELINE
from viewkit.cli.compare import CompareDevices
from viewkit.cli.console import print_json
from viewkit.cli.options import Argument
from viewkit.pipelines.engine.config import fields_of
from viewkit.pipelines.engine.schema import DIALECT, TYPES, config_schema, option_schema, table_schema
from viewkit.pipelines.experiments.experiment import ABOUT, PAPERS
from viewkit.shards.errors import ConfigError

EXPERIMENT, CONFIG = "experiment", "config"
STAGES = COMMANDS
PRESET = {"preset": {"type": "string", "description": "options of a run of an experiment: EXPERIMENT/RUN"}}
ONCE = ("pack", "pretrain", COMPARE.name)
"""Stages of an experiment that run once; the others may be lists of tables."""


def schema(
    of: Annotated[
        str,
        typer.Argument(
            help=f"{EXPERIMENT}: an experiment's file; {CONFIG}: a file for --config with a table for every command; a "
            "command's name: a file for its --config alone",
            metavar="[WHAT]",
        ),
    ] = EXPERIMENT,
) -> None:
    """Print the JSON Schema of an experiment or a config file; editors complete and check TOML files by it."""
    print_json(schema_of(of))


def schema_of(what: str) -> dict[str, Any]:
    """`ConfigError` for what has no schema."""
    if what == EXPERIMENT:
        made = experiment_schema()
    elif what == CONFIG:
        tables = {spec.name: file_schema(spec) for spec in (*PIPELINE, COMPARE)}
        made = table_schema("a file for --config: a table for every command", tables)
    elif what in STAGES:
        made = file_schema(STAGES[what])
    else:
        raise ConfigError(f"viewkit schema: WHAT is '{what}'; choose one of {', '.join((EXPERIMENT, CONFIG, *STAGES))}")
    return {"$schema": DIALECT, "title": f"viewkit {what}", **made}


def file_schema(spec: StageCommand) -> dict[str, Any]:
    """A command's options as its ``--config`` takes them: those of the config and of how it runs, no locations."""
    execution = CompareDevices if spec is COMPARE else spec.execution_class()
    fields = [*fields_of(spec.config_class()), *fields_of(execution)]
    made = config_schema(spec.help, {field.name: field for field in fields}.values())
    if spec.presets:
        made["properties"] = PRESET | made["properties"]
    return made


def experiment_schema() -> dict[str, Any]:
    """An experiment's file: what it says about itself, a table for every stage, and its runs.

    A file with a base need not have a title, and takes options away from the base by empty texts.
    """
    tables = {name: _stage_table(spec) for name, spec in STAGES.items()}
    stages = {name: _stage(name) for name in tables}
    made = table_schema("an experiment for `viewkit run`", ABOUT_SCHEMAS | stages)
    assert set(ABOUT_SCHEMAS) == set(ABOUT)
    own = {name: {"$ref": "#/$defs/no_removal"} for name in (*stages, "runs")}
    made["if"] = {"required": ["base"]}
    made["else"] = {"required": ["title"], "properties": own}
    made["$defs"] = tables | {"no_removal": NO_REMOVAL}
    return made


def _stage(name: str) -> dict[str, Any]:
    """A stage's table, a list of them where it may run several times, or an empty text: not the base's stage."""
    table = {"$ref": f"#/$defs/{name}"}
    most = {"minItems": 1, "maxItems": 1} if name in ONCE else {}
    return {"if": {"type": "array"}, "then": {"items": table, **most}, "else": {"if": {"const": ""}, "else": table}}


def _stage_table(spec: StageCommand) -> dict[str, Any]:
    """A stage's table: its config's options, and the locations that are options of its command."""
    options = {field.name: option_schema(field) for field in fields_of(spec.config_class())}
    places = {argument.name: _location(argument) for argument in spec.arguments if argument.option}
    every = (PRESET if spec.presets else {}) | options | places
    if spec is COMPARE:  # where a list is taken for words with commas between them
        every = {name: _or_listed(schema) for name, schema in every.items()}
    return table_schema(spec.help, {name: _or_removed(schema) for name, schema in every.items()})


def _or_listed(schema: dict[str, Any]) -> dict[str, Any]:
    return schema | ({"type": ["string", "array"]} if schema.get("type") == "string" else {})


def _location(argument: Argument) -> dict[str, Any]:
    default = {} if argument.default is None else {"default": argument.default}
    return {"type": TYPES.get(argument.kind, "string"), "description": argument.help, **default}


def _or_removed(schema: dict[str, Any]) -> dict[str, Any]:
    if "string" in schema.get("type", ()):
        return schema
    about = {key: schema[key] for key in ("description", "default") if key in schema}
    return about | {"anyOf": [{key: value for key, value in schema.items() if key not in about}, {"const": ""}]}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


NO_REMOVAL = {
    "if": {"type": ["object", "array"]},
    "then": {"additionalProperties": {"$ref": "#/$defs/no_removal"}, "items": {"$ref": "#/$defs/no_removal"}},
    "else": {"not": {"const": ""}},
}
PUBLISHED = table_schema(
    "a number of the paper",
    {
        "run": _text("the run it is compared with"),
        "metric": _text("what `evaluate` writes, e.g. linear"),
        "value": {"type": "number", "description": "in percent"},
        "of": _text("which of the metric's numbers, e.g. top5") | {"default": "top1"},
        "folder": _text("of the evaluation") | {"default": "eval"},
    },
    ("run", "metric", "value"),
)
ABOUT_SCHEMAS: dict[str, Any] = {
    "title": _text("what the experiment shows, in a line"),
    "paper": _text(f"the paper it repeats: {', '.join(PAPERS)}"),
    "table": _text("the place in the paper"),
    "source": _text("where the settings are written"),
    "data": _text("the images it needs"),
    "cost": _text("what the paper's authors used"),
    "base": _text("an experiment, or a file, whose tables are taken over key by key"),
    "notes": _texts("sentences about what is different or open"),
    "needs": {
        "type": "object",
        "description": "stage.option -> what a user must have for it, and where it could be had",
        "additionalProperties": {"type": "string"},
    },
    "says": {
        "type": "object",
        "description": "step -> what it shows and why, in a line that is printed before it runs",
        "additionalProperties": {"type": "string"},
    },
    "next": _texts("commands to print at the end; {dataset} stands for the dataset's folder"),
    "published": {"type": "array", "description": "numbers that the paper prints", "items": PUBLISHED},
    "runs": {
        "type": "object",
        "description": "trainings that are compared: NAME -> options of pretrain, over those of [pretrain]",
        "additionalProperties": {"$ref": "#/$defs/pretrain"},
    },
}
"""What a file says about itself."""
