"""`viewkit.run`: any command from Python, with errors as exceptions."""

from pathlib import Path
from typing import Any

import typer

from viewkit.cli.main import UsageError, app, explain_usage
from viewkit.cli.options import option_name
from viewkit.shards.errors import ConfigError, DataError


def run(command: str, *places: str | Path, **options: Any) -> None:
    """Do what ``viewkit COMMAND PLACES --options`` does: a stage, a whole experiment (``run("run", "pipeline", ...)``).

    options: by the names of the command line with ``_`` for ``-``; True and False switch, None is left out, a list
        repeats the option. Raises `ConfigError`, `DataError` or `RefusedError` with the line that the command prints.
    """
    known = typer.main.get_command(app)
    found: Any = known.commands.get(command)  # type: ignore[attr-defined]
    if found is None:
        raise ConfigError(f"viewkit.run: there is no command '{command}'; there are {', '.join(known.commands)}")  # type: ignore[attr-defined]
    words = [command, *(str(place) for place in places)]
    for name, value in options.items():
        words += _words(found, name, value)
    try:
        code = app(args=words, standalone_mode=False)
    except UsageError as error:
        raise ConfigError(explain_usage(error)) from error
    if isinstance(code, int) and code:
        raise DataError(f"viewkit {command}: failed with exit code {code}; what it printed says why")


def _words(command: Any, name: str, value: Any) -> list[str]:
    """The option as it stands on a command line."""
    switch = option_name(name)
    if value is None:
        return []
    if isinstance(value, bool):
        off = [word for each in command.params for word in each.secondary_opts if switch in each.opts]
        return [switch] if value else off[:1]
    values = value if isinstance(value, list | tuple) else [value]
    return [word for each in values for word in (switch, str(each))]
