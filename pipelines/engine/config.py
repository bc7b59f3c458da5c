"""Configs: frozen dataclasses whose fields are `Annotated[type, "help"]`, the only home of an option."""

import dataclasses
import inspect
import json
import math
import tomllib
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from viewkit.shards.errors import ConfigError

Config = TypeVar("Config")

MAX = 10**9
"""Largest integer an option takes, seeds aside: whatever is larger is a typing error."""

RENAMED: dict[str, str] = {"start": "init"}
"""Options that were renamed, old field name -> new one, e.g. ``{"num_pairs": "pairs"}``.

An old name is refused with the new one, wherever an option of the new name exists and none of the old."""


def unknown_option(name: str, known: Collection[str]) -> str:
    """What to say of an option that does not exist: its new name, else the nearest names, else all of them.

    name, known: as fields are named, or as on the command line (``--num-views``); the answer is in the same form.
    """
    field, dashed = name.removeprefix("--").replace("-", "_"), name.startswith("--")
    shown = {each.removeprefix("--").replace("-", "_"): each for each in known}
    if RENAMED.get(field) in shown:
        old = "--" + field.replace("_", "-")
        return f"option '{old}' is now '--{RENAMED[field].replace('_', '-')}'"
    near = [shown[each] for each in get_close_matches(field, shown, n=3)]
    if near:
        return f"unknown option '{name}'; did you mean {' or '.join(near)}?"
    listed = f"; the options are {', '.join(sorted(known))}"
    return f"unknown option '{name}'" + ("" if dashed else listed)


MAIN_GROUP = "Most used"
OTHER_GROUP = "Options"


@dataclass(frozen=True)
class Group:
    """Group of one option in the help, beside its help text: ``Annotated[int, "bins", Group("Histograms")]``."""

    name: str


@dataclass(frozen=True)
class Field:
    """One option. kind: str, int, float or bool. choices: the allowed values, or None. optional: None is allowed.

    group: heading that the help puts it under.
    """

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[Any, ...] | None
    optional: bool
    group: str = OTHER_GROUP

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING


def fields_of(config: type) -> list[Field]:
    """The options of a config dataclass, in order.

    Its class attribute ``MAIN`` names the options that most people need: their group is `MAIN_GROUP`. The others are in
    the `Group` of their annotation, else in the ``GROUP`` of the class that declares them.
    """
    hints = typing.get_type_hints(config, include_extras=True)
    main = getattr(config, "MAIN", ())
    found = [_field(field, hints[field.name], _group(config, field.name)) for field in dataclasses.fields(config)]
    return [dataclasses.replace(field, group=MAIN_GROUP) if field.name in main else field for field in found]


def _group(config: type, name: str) -> str:
    owner = next(base for base in config.__mro__ if name in inspect.get_annotations(base))
    return str(owner.__dict__.get("GROUP", OTHER_GROUP))


def in_groups(fields: Iterable[Field]) -> dict[str, list[Field]]:
    """Group -> its options, in the order of the options; `MAIN_GROUP` stands first."""
    groups: dict[str, list[Field]] = {MAIN_GROUP: []}
    for field in fields:
        groups.setdefault(field.group, []).append(field)
    return {name: members for name, members in groups.items() if members}


def _field(field: "dataclasses.Field[Any]", hint: Any, group: str) -> Field:
    kind, *notes = typing.get_args(hint)
    optional = False
    if typing.get_origin(kind) in (Union, types.UnionType):
        members = [member for member in typing.get_args(kind) if member is not type(None)]
        optional, kind = True, members[0]
    choices = None
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        kind = type(choices[0])
    kind = typing.get_origin(kind) or kind  # of a tuple; what it holds only `make_nested` needs
    own = next((note.name for note in notes if isinstance(note, Group)), group)
    return Field(field.name, kind, field.default, notes[0], choices, optional, own)


def config_values(config: Any) -> dict[str, Any]:
    """The config as JSON values, for identities."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config), allow_nan=False))
    return values


def identity_values(config: Any) -> dict[str, Any]:
    """What of a config an identity holds: all but its `NOT_IN_IDENTITY` options, which do not change the result.

    Of an option that names a TOML file only the file's name counts, never its folder: its content is an input.
    """
    left_out = getattr(config, "NOT_IN_IDENTITY", ())
    values = {name: value for name, value in config_values(config).items() if name not in left_out}
    return {name: Path(value).name if str(value).endswith(".toml") else value for name, value in values.items()}


def load_toml(path: Path, where: str) -> dict[str, Any]:
    """The tables of a TOML file. `ConfigError` for whatever cannot be read as one, however it was made."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{where}: cannot be read (it is no ordinary file)")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: not a TOML file, it is not UTF-8 text ({error})") from None
    except (ValueError, RecursionError) as error:  # also of numbers with thousands of digits, and endless nesting
        raise ConfigError(f"{where}: not a TOML file ({error})") from None


def make_config(kind: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """A config from plain values, e.g. of a TOML file; `ConfigError` names an unknown field or a wrong type.

    where: what the values come from, for the message.
    """
    known = {field.name: field for field in fields_of(kind)}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{where}: {unknown_option(name, known)}")
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
    if isinstance(value, int) and field.name != "seed" and abs(value) > MAX:
        raise ConfigError(f"{where}: option '{field.name}' is {value}; it takes at most {MAX}")
    if field.name == "seed" and isinstance(value, int) and not 0 <= value < 2**63:
        raise ConfigError(f"{where}: option 'seed' is {value}; it must lie in 0 ... 2^63 - 1")
    if field.choices is not None and value not in field.choices:
        choices = ", ".join(str(choice) for choice in field.choices)
        raise ConfigError(f"{where}: option '{field.name}' is {value!r}; choose one of {choices}")


def make_nested(kind: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """`make_config` for a dataclass whose fields may also be dataclasses (tables of a TOML file), tuples of dataclasses
    (lists of tables) and tuples of numbers. Values that are no plain lists or tables are taken as they are."""
    hints = typing.get_type_hints(kind, include_extras=True)
    built = {
        name: _nested(typing.get_args(hints[name])[0], value, f"{where}: {name}") if name in hints else value
        for name, value in values.items()
    }
    try:
        return make_config(kind, built, where)
    except ConfigError as error:  # __post_init__ does not know where the values come from
        raise error if str(error).startswith(where) else ConfigError(f"{where}: {error}") from None


def _nested(hint: Any, value: Any, where: str) -> Any:
    """A table as its dataclass, a list as a tuple of the declared items, anything else unchanged."""
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    if typing.get_origin(hint) in (Union, types.UnionType):
        return _nested(members[0], value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            return value
        return make_nested(hint, value, where)
    if typing.get_origin(hint) is not tuple or isinstance(value, tuple):
        return value
    item = members[0]
    if dataclasses.is_dataclass(item):
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            raise ConfigError(f"{where} is {value!r}; needed a list of tables, written [[{where.split()[-1]}]]")
        return tuple(_nested(item, each, f"{where} {index}") for index, each in enumerate(value))
    count = None if members[-1] is Ellipsis else len(members)
    if not isinstance(value, list) or count not in (None, len(value)):
        raise ConfigError(f"{where} is {value!r}; needed a list of {count or 'any number of'} numbers")
    accepted = (int, float) if item is float else (item,)
    if not all(isinstance(each, accepted) and not isinstance(each, bool) and math.isfinite(each) for each in value):
        raise ConfigError(f"{where} is {value!r}; needed a list of finite numbers of type {item.__name__}")
    return tuple(item(each) for each in value)
