"""JSON Schemas of configs, made from the dataclasses: what an editor completes and checks in a TOML file.

A schema knows names, types, choices and help texts, all that `config.make_config` checks before it makes anything. What
only `__post_init__` knows (ranges, what goes with what) is left to the command.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from viewkit.pipelines.engine.config import MAX, Field

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def option_schema(field: Field) -> dict[str, Any]:
    """The schema of one option's value. TOML has no null: an option that may be None is left out of the file."""
    schema: dict[str, Any] = {"description": field.help}
    if field.choices is not None:
        schema["enum"] = list(field.choices)
    else:
        schema["type"] = TYPES[field.kind]
    if field.kind is int and field.choices is None:
        low, high = (0, 2**63 - 1) if field.name == "seed" else (-MAX, MAX)
        schema |= {"minimum": low, "maximum": high}
    if not field.required and field.default is not None:
        schema["default"] = field.default
    return schema


def table_schema(title: str, properties: Mapping[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    """The schema of a table that has these keys and no others."""
    schema = {"description": title, "type": "object", "properties": dict(properties), "additionalProperties": False}
    return schema | ({"required": list(required)} if required else {})


def config_schema(title: str, fields: Iterable[Field]) -> dict[str, Any]:
    """The schema of a table of options."""
    members = list(fields)
    options = {field.name: option_schema(field) for field in members}
    return table_schema(title, options, [field.name for field in members if field.required])
