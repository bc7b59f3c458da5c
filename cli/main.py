"""The command line. A line a command; nothing here imports torch, so `viewkit --help` answers at once."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from viewkit.cli import doctor, export, inspect, status, verify, views
from viewkit.cli.commands import PIPELINE
from viewkit.cli.console import print_error
from viewkit.cli.run import run_command
from viewkit.shards.errors import ViewkitError

FAILED, WRONG_OPTIONS, KEYBOARD_INTERRUPT = 1, 2, 130
STOPPED = "stopped; run the same command again to go on"

app = typer.Typer(
    name="viewkit",
    help="Prepare better positive pairs for contrastive pretraining: once, offline, as resumable jobs over shards.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong options, 3 refused (it would overwrite or mix somebody's work).",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool | None) -> None:
    if asked:
        from importlib import metadata

        print(f"viewkit {metadata.version('viewkit')}")
        raise typer.Exit


@app.callback()
def _viewkit(
    version: Annotated[
        bool | None,
        typer.Option("--version", help="Print the version and leave.", callback=_show_version, is_eager=True),
    ] = None,
) -> None:
    pass


for each in PIPELINE:
    app.command(each.name, help=each.help)(run_command(each))
app.command("status")(status.status)
app.command("verify")(verify.verify)
app.command("inspect")(inspect.inspect)
app.command("views")(views.views)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)

UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Base of the errors typer raises for a wrong command line (typer does not export it)."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    try:
        code = app(args=list(sys.argv[1:] if arguments is None else arguments) or ["--help"], standalone_mode=False)
    except UsageError as error:
        print_error(f"{error.format_message()} ('viewkit --help' and 'viewkit COMMAND --help' list what there is)")
        return WRONG_OPTIONS
    except ViewkitError as error:
        print_error(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print_error(STOPPED)
        return FAILED
    except BrokenPipeError:
        sys.stderr.close()
        return FAILED
    if code == KEYBOARD_INTERRUPT:  # typer's own word for it
        print_error(STOPPED)
        return FAILED
    return code if isinstance(code, int) else 0


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that are no UTF-8
    sys.exit(run())
