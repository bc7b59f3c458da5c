"""Man pages of the program and of every command, from what `--help` shows: `python -m viewkit.cli.man FOLDER`.

Plain roff with the macros of man(7). `make man` writes them to build/man; `man -l build/man/viewkit-score.1` shows one.
"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typer

from viewkit.cli.help import sections_of
from viewkit.cli.main import app


def roff(text: str) -> str:
    """Text of one line as roff takes it literally."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith(".") else text


def pages() -> dict[str, str]:
    """File name -> man page."""
    group: Any = typer.main.get_command(app)
    context = group.context_class(group, info_name="viewkit")
    made = {"viewkit.1": "\n".join(_program(group, context))}
    for name, command in group.commands.items():
        below = command.context_class(command, info_name=name, parent=context)
        made[f"viewkit-{name}.1"] = "\n".join(_command(name, command, below))
    return made


def _program(group: Any, context: Any) -> Iterator[str]:
    yield from _head("viewkit", _sentences(group.help)[0])
    yield from (".SH SYNOPSIS", ".B viewkit", "COMMAND [OPTIONS] [ARGUMENTS]", ".SH DESCRIPTION", roff(group.help))
    panels: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        panels.setdefault(command.rich_help_panel, []).append(name)
    for panel, names in panels.items():
        yield f".SH {panel.upper()}"
        for name in names:
            yield from (".TP", f".BR viewkit\\-{roff(name)} (1)", roff(_sentences(group.commands[name].help)[0]))
    yield from _options(group, context)
    yield from (".SH EXIT STATUS", roff(group.epilog.removeprefix("Exit codes: ").capitalize()), "")


def _command(name: str, command: Any, context: Any) -> Iterator[str]:
    yield from _head(f"viewkit-{name}", _sentences(command.help)[0])
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (".SH SYNOPSIS", f".B viewkit {roff(name)}", roff(usage))
    yield from (".SH DESCRIPTION", roff(" ".join(command.help.split())))
    yield from _options(command, context)
    title, *lines = command.epilog.split("\n\n")
    yield from (f".SH {title.rstrip(':').upper()}", ".nf", *map(roff, lines), ".fi")
    yield from (".SH SEE ALSO", ".BR viewkit (1)", "")


def _head(name: str, line: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "1" "" "viewkit {version("viewkit")}" "viewkit"'
    yield from (".SH NAME", roff(f"{name} - {line.rstrip('.')}"))


def _options(command: Any, context: Any) -> Iterator[str]:
    for section, records in sections_of(command, context).items():
        yield f".SH {roff(section.upper())}"
        for names, text in records:
            breakable = roff(names).replace("|", r"|\:")  # a line may end after any choice
            yield from (".TP", f".B {breakable}", roff(" ".join(text.split())) or "\\&")


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.)\s", " ".join(text.split()))


def main(arguments: list[str]) -> int:
    """Write every page into the folder that the only argument names; 2 without one."""
    if len(arguments) != 1:
        print("error: needed one argument, the folder to write the man pages to", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages().items():
        (folder / name).write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
