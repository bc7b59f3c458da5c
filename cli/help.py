"""Help pages: options in groups, an example to paste below them; panels on a terminal, plain text elsewhere."""

import copy
import sys
from typing import Any

from typer.core import TyperCommand, TyperGroup

from viewkit.cli.options import GENERAL

PANEL = "rich_help_panel"


def example(*lines: str) -> str:
    """An epilog: commands to paste, one a line."""
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines])


class HelpCommand(TyperCommand):
    """A command whose help has groups. `--help` itself stands among the general options."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            setattr(option, PANEL, GENERAL)
        return option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if sys.stdout.isatty():
            TyperCommand.format_help(_for_rich(self), ctx, formatter)
        else:
            super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Plain text: a section for every group, in the order in which they first appear."""
        for name, records in sections_of(self, ctx).items():
            with formatter.section(name):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_lines(self.epilog, formatter)


class HelpGroup(TyperGroup):
    """The list of commands; groups of them as panels on a terminal."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if sys.stdout.isatty():
            TyperGroup.format_help(_for_rich(self), ctx, formatter)
        else:
            super().format_help(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_lines(self.epilog, formatter)


def sections_of(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Heading -> (names, help) of the arguments and options below it, in the order in which they first appear."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            default = "Arguments" if parameter.param_type_name == "argument" else GENERAL
            sections.setdefault(getattr(parameter, PANEL, None) or default, []).append(record)
    return sections


def _write_lines(epilog: str | None, formatter: Any) -> None:
    """As they stand: a wrapped command cannot be pasted."""
    if epilog:
        formatter.write("\n" + "".join(f"{line}\n" for line in epilog.split("\n\n")))


def _for_rich(command: Any) -> Any:
    """A copy for rich, with our texts escaped: their brackets are no markup."""
    from rich.markup import escape

    shown = copy.copy(command)
    shown.rich_markup_mode = "rich"
    shown.help, shown.epilog = escape(command.help or ""), escape(command.epilog or "")
    shown.params = [copy.copy(parameter) for parameter in command.params]
    for parameter in shown.params:
        parameter.help = escape(parameter.help or "")
    return shown
