"""The command line: every command, every error as one line. Nothing here imports torch: `--help` answers at once."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from types import FrameType
from typing import Annotated, Any

import typer

from viewkit.cli import (
    compare,
    doctor,
    experiments,
    export,
    init,
    inspect,
    run_experiment,
    schema,
    slurm,
    status,
    verify,
    views,
)
from viewkit.cli.commands import COMPARE, PIPELINE
from viewkit.cli.console import print_error
from viewkit.cli.help import HelpCommand, HelpGroup, example
from viewkit.cli.run import run_command
from viewkit.pipelines.engine.config import unknown_option
from viewkit.pipelines.engine.memory import OUT_OF_MEMORY, is_out_of_memory
from viewkit.shards.errors import ViewkitError
from viewkit.shards.files import explanation

FAILED, WRONG_OPTIONS, KEYBOARD_INTERRUPT = 1, 2, 130
STOPPED = "stopped; run the same command again to go on"
TRACEBACK = "VIEWKIT_TRACEBACK"
"""Environment variable that shows where an error of the operating system was raised."""

app = typer.Typer(
    name="viewkit",
    help="Prepare better positive pairs for contrastive pretraining: once, offline, as resumable jobs over shards.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong options, 3 refused (it would overwrite or mix somebody's work).",
    cls=HelpGroup,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # `help` decides: rich on a terminal, plain text elsewhere
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


WHOLE, STAGES, LOOKING = "Whole experiments", "Stages, in the order of a full run", "Look, check and export"

CHAINS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("init", init.init, "viewkit init my_images experiment.toml"),
    ("run", run_experiment.run_experiment, "viewkit run demo demo:train demo/train --test demo:test"),
    ("slurm", slurm.slurm, "viewkit slurm pipeline my_images dataset --array 8 --gpus 1 --to scripts"),
    ("compare", compare.compare_command(), COMPARE.examples[0]),
    ("experiments", experiments.experiments, "viewkit experiments GenView"),
)
"""Commands about whole chains: name, function, an example to paste."""

LOOK: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("status", status.status, "viewkit status dataset --rejects"),
    ("verify", verify.verify, "viewkit verify dataset"),
    ("inspect", inspect.inspect, "viewkit inspect dataset astronaut_0000_0000"),
    ("views", views.views, "viewkit views dataset sheet.png --policy simclr --num-views 6"),
    ("export", export.export, "viewkit export dataset/runs/default --to encoder.safetensors"),
    ("schema", schema.schema, "viewkit schema > experiment.schema.json"),
    ("doctor", doctor.doctor, "viewkit doctor"),
)
"""Commands that are no stage: name, function, an example to paste."""

for name, function, line in CHAINS:
    app.command(name, cls=HelpCommand, epilog=example(line), rich_help_panel=WHOLE)(function)
for each in PIPELINE:
    epilog = example(*each.examples)
    app.command(each.name, cls=HelpCommand, help=each.help, epilog=epilog, rich_help_panel=STAGES)(run_command(each))
for name, function, line in LOOK:
    app.command(name, cls=HelpCommand, epilog=example(line), rich_help_panel=LOOKING)(function)

UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Base of the errors typer raises for a wrong command line (typer does not export it)."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    try:
        code = app(args=list(sys.argv[1:] if arguments is None else arguments) or ["--help"], standalone_mode=False)
    except UsageError as error:
        print_error(f"{explain_usage(error)} ('viewkit --help' and 'viewkit COMMAND --help' list what there is)")
        return WRONG_OPTIONS
    except ViewkitError as error:
        print_error(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print_error(STOPPED)
        return FAILED
    except BrokenPipeError:
        if sys.stderr is not None:
            sys.stderr.close()
        return FAILED
    except (OSError, MemoryError, ImportError, RuntimeError, SystemError) as error:
        # The machine's, not ours: a folder that vanished, a limit that was reached.
        short = is_out_of_memory(error)
        if os.environ.get(TRACEBACK) or not (short or isinstance(error, OSError)):
            raise
        error.__traceback__ = None  # and with it all that its frames hold
        print_error(OUT_OF_MEMORY if short or not isinstance(error, OSError) else explanation(error))
        return FAILED
    if code == KEYBOARD_INTERRUPT:  # typer's own code for it
        print_error(STOPPED)
        return FAILED
    return code if isinstance(code, int) else 0


def explain_usage(error: Any) -> str:
    """The message of a wrong command line; an unknown option is answered with its new name or the nearest ones."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is None or context is None:
        return str(error.format_message())
    names = [name for each in context.command.get_params(context) for name in (*each.opts, *each.secondary_opts)]
    where = f"viewkit {context.info_name}" if context.parent else "viewkit"
    return f"{where}: {unknown_option(option, [name for name in names if name.startswith('--')])}"


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that are no UTF-8
    stop_on_signals()
    sys.exit(run())


def stop_on_signals() -> None:
    """A closed terminal and SIGTERM stop a command as Ctrl-C does, with a line that says so."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not where it is ignored, as under nohup
            signal.signal(number, stop)
