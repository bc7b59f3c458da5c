"""Commands made from config dataclasses: names, defaults and help live there and nowhere else.

`--preset NAME` gives values where a command has presets, `--config FILE.toml` overrides them, options given on the
command line override both, the dataclass has the rest.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from viewkit.pipelines.engine.config import (
    MAIN_GROUP,
    Field,
    fields_of,
    in_groups,
    load_toml,
    make_config,
    unknown_option,
)
from viewkit.shards.errors import ConfigError
from viewkit.shards.stores.url import refuse_url

WHERE, GENERAL = "Where", "General"
"""Groups of the options that are in no config: what a command works on, and how it reports."""


@dataclass(frozen=True)
class Argument:
    """A location: what a command works on. Never part of a config, so it never counts for an identity.

    kind: a type, or list[str] for an option that may be repeated. in_store: whether it may be a URL (docs/stores.md).
    """

    name: str
    help: str
    kind: Any = str  # also list[str], which is no type
    option: bool = False
    default: str | None = None
    in_store: bool = False


def option_name(name: str) -> str:
    return "--" + name.removesuffix("_").replace("_", "-")


def default_text(field: Field) -> str:
    """The default as help shows it."""
    if field.required:
        return "needed"
    if field.kind is bool and field.default is not None:
        return "on" if field.default else "off"
    return "none" if field.default is None else str(field.default)


def _parameter(field: Field) -> inspect.Parameter:
    kind: Any = Literal[field.choices] if field.choices else field.kind
    names = [option_name(field.name)]
    if field.kind is bool:
        names = [f"{names[0]}/--no-{names[0][2:]}"]
    text = f"{field.help} [{default_text(field)}]"
    option = typer.Option(*names, help=text, show_default=False, rich_help_panel=field.group)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _location(argument: Argument) -> inspect.Parameter:
    if argument.option:
        text = argument.help + (f" [{argument.default}]" if argument.default else "")
        info: Any = typer.Option(option_name(argument.name), help=text, show_default=False, rich_help_panel=WHERE)
    else:
        info = typer.Argument(help=argument.help, metavar=argument.name.upper(), show_default=False)
    needed = not argument.option
    return inspect.Parameter(
        argument.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if needed else argument.default,
        annotation=Annotated[argument.kind if needed else argument.kind | None, info],
    )


CONFIG_FILE = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="TOML file with values for these options, or a table of them for every command",
            show_default=False,
            rich_help_panel=GENERAL,
        ),
    ],
)


PRESET = inspect.Parameter(
    "preset",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        typer.Option(
            "--preset", help="options of an experiment's run, EXPERIMENT/RUN; other options override them",
            show_default=False, rich_help_panel=MAIN_GROUP,
        ),
    ],
)  # fmt: skip


def flag(name: str, text: str) -> inspect.Parameter:
    """A switch that is off unless given."""
    info = typer.Option(option_name(name), help=text, show_default=False, rich_help_panel=GENERAL)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, info])


def command(
    name: str,
    doc: str,
    arguments: Sequence[Argument],
    configs: Sequence[type],
    flags: Sequence[inspect.Parameter],
    commands: Sequence[str],
    body: Callable[[dict[str, Any], list[Any], dict[str, bool]], None],
    presets: Callable[[str], dict[str, Any]] | None = None,
    beneath: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
) -> Callable[..., None]:
    """A function whose signature is the command line; it calls ``body(locations, config objects, flags)``.

    Configs may share fields (``seed``): the option then goes to each of them. commands: names that tables of a config
    file may have. presets: gives the options of a preset by its name. beneath: gives options that
    those of the file and the command line override, from what is given.
    """
    fields = {field.name: field for config in configs for field in fields_of(config)}
    groups = in_groups(fields.values())
    parameters = [
        *(_location(argument) for argument in arguments if not argument.option),
        *([PRESET] if presets else []),
        *(_parameter(field) for field in groups.pop(MAIN_GROUP, [])),
        *(_location(argument) for argument in arguments if argument.option),
        *(_parameter(field) for group in groups.values() for field in group),
        CONFIG_FILE,
        *flags,
    ]

    def run(**given: Any) -> None:
        known = {*fields, "preset"} if presets else set(fields)
        from_file = read_toml(given["config"], name, known, commands) if given["config"] else {}
        options = {field: given[field] for field in fields if given[field] is not None}
        values = {**from_file, **options}
        locations = {argument.name: given[argument.name] for argument in arguments}
        preset = given["preset"] or from_file.get("preset") if presets else None
        if presets and preset:
            own = taken(presets(preset), f"--preset {preset}", fields, arguments)
            values = {**own, **values}
            for argument in arguments:
                if argument.name in own and locations[argument.name] == argument.default:
                    locations[argument.name] = located(own[argument.name], argument.kind, f"--preset: {argument.name}")
        if beneath:
            values = {**taken(beneath(given), f"viewkit {name}: the experiment's [{name}]", fields), **values}
        made: list[Any] = [make_config(config, _of(config, values), f"viewkit {name}") for config in configs]
        for argument in arguments:
            if not argument.in_store and isinstance(locations[argument.name], str | Path):
                shown = option_name(argument.name) if argument.option else argument.name.upper()
                refuse_url(locations[argument.name], f"viewkit {name}: {shown}")
        body(locations, made, {each.name: given[each.name] for each in flags})

    run.__name__ = name
    run.__doc__ = doc
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def taken(
    values: Mapping[str, Any], where: str, fields: Collection[str], arguments: Sequence[Argument] = ()
) -> dict[str, Any]:
    """Options of an experiment's table with the names of fields; `ConfigError` for one that is neither a field nor an
    argument that is an option."""
    known = [*fields, *(argument.name for argument in arguments if argument.option)]
    plain = {key.replace("-", "_"): value for key, value in values.items()}
    for option in plain:
        if option not in known:
            raise ConfigError(f"{where}: {unknown_option(option, known)}")
    return plain


def located(value: Any, kind: type, where: str) -> Any:
    """The value of an argument from a TOML file; `ConfigError` for another type."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    if not isinstance(value, kind):
        raise ConfigError(f"{where} is {value!r}; needed a {kind.__name__}")
    return value


def _of(config: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in fields_of(config) if field.name in values}


def read_toml(path: Path, command_name: str, known: set[str], commands: Sequence[str]) -> dict[str, Any]:
    """Values for one command from a TOML file: a flat one, or one with a table for every command.

    Raises `ConfigError` for an unknown name, values beside tables, or a file that is no TOML.
    """
    values = load_toml(path, f"--config {path}")
    tables = {name for name, value in values.items() if isinstance(value, dict)}
    strangers = sorted(tables - set(commands))
    if strangers:
        raise ConfigError(
            f"--config {path}: there is no command [{strangers[0]}]; the tables are {', '.join(commands)}"
        )
    if tables and tables != set(values):
        stray = sorted(set(values) - tables)[0]
        raise ConfigError(
            f"--config {path}: '{stray}' stands outside the tables; move it into one, e.g. [{command_name}]"
        )
    where = f"--config {path}" + (f": [{command_name}]" if tables else "")
    chosen = values.get(command_name, {}) if tables else values
    plain = {name.replace("-", "_"): value for name, value in chosen.items()}
    unknown = sorted(set(plain) - known)
    if unknown:
        raise ConfigError(f"{where}: {unknown_option(unknown[0], known)}")
    return plain
