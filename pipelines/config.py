"""Configs: frozen dataclasses whose fields are `Annotated[type, "help"]`, the only home of an option."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Union

from viewkit.shards.errors import ConfigError

Config = TypeVar("Config")

MOST = 10**9
"""Largest whole number an option takes, seeds aside: beyond it are only slips of the keyboard."""


@dataclass(frozen=True)
class Field:
    """One option. kind: str, int, float or bool. choices: the allowed values, or None. optional: None is allowed."""

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[Any, ...] | None
    optional: bool

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING


def fields_of(config: type) -> list[Field]:
    """The options of a config dataclass, in order."""
    hints = typing.get_type_hints(config, include_extras=True)
    return [_field(field, hints[field.name]) for field in dataclasses.fields(config)]


def _field(field: "dataclasses.Field[Any]", hint: Any) -> Field:
    kind, *notes = typing.get_args(hint)
    optional = False
    if typing.get_origin(kind) in (Union, types.UnionType):
        members = [member for member in typing.get_args(kind) if member is not type(None)]
        optional, kind = True, members[0]
    choices = None
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        kind = type(choices[0])
    return Field(field.name, kind, field.default, notes[0], choices, optional)


def config_values(config: Any) -> dict[str, Any]:
    """The config as JSON values, for identities."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config), allow_nan=False))
    return values


def make_config(kind: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """A config from plain values, e.g. of a TOML file; `ConfigError` names an unknown field or a wrong type.

    where: what the values come from, for the message.
    """
    known = {field.name: field for field in fields_of(kind)}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{where}: unknown option '{name}'; the options are {', '.join(sorted(known))}")
        _check_type(known[name], value, where)
    missing = [name for name, field in known.items() if field.required and name not in values]
    if missing:
        raise ConfigError(f"{where}: option '{missing[0]}' is needed")
    return kind(**{name: _converted(known[name], value) for name, value in values.items()})


def _converted(field: Field, value: Any) -> Any:
    return float(value) if field.kind is float and value is not None else value


def _check_type(field: Field, value: Any, where: str) -> None:
    if value is None and field.optional:
        return
    accepted = (int, float) if field.kind is float else (field.kind,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and field.kind is not bool):
        raise ConfigError(
            f"{where}: option '{field.name}' is {value!r}, and it takes a value of type {field.kind.__name__}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: option '{field.name}' is {value}; it takes a finite number")
    if isinstance(value, int) and field.name != "seed" and abs(value) > MOST:
        raise ConfigError(f"{where}: option '{field.name}' is {value}; it takes at most {MOST}")
    if field.name == "seed" and isinstance(value, int) and not 0 <= value < 2**63:
        raise ConfigError(f"{where}: option 'seed' is {value}; it must lie in 0 ... 2^63 - 1")
    if field.choices is not None and value not in field.choices:
        choices = ", ".join(str(choice) for choice in field.choices)
        raise ConfigError(f"{where}: option '{field.name}' is {value!r}; choose one of {choices}")
