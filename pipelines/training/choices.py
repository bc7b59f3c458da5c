"""Options that belong to an entry of a table: every framework has its own, so has every multi-view loss.

An entry declares each with name, type, help, range and default. The command offers the options of all entries, and one
that the chosen entry does not have is refused, so that none is given in vain. Plain Python, cheap to import.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any

from viewkit.pipelines.engine.ranges import check_above_zero, check_at_least, check_within


@dataclass(frozen=True)
class Option:
    """An option as an entry declares it. positive: a finite number above 0; else low and high are its bounds."""

    name: str
    kind: type
    help: str
    low: float | None = None
    high: float | None = None
    positive: bool = False

    def check(self, value: Any) -> None:
        """`ConfigError` for a value outside the range."""
        if self.positive:
            check_above_zero(**{self.name: value})
        elif self.low is not None and self.high is not None:
            check_within(self.low, self.high, **{self.name: value})
        elif self.low is not None:
            check_at_least(self.low, **{self.name: value})


Defaults = Mapping[Option, Any]
"""The options of an entry and their values where none are given."""


def options_class(name: str, entries: Mapping[str, Iterable[Defaults]], *, owner: str, group: str) -> Any:
    """A frozen dataclass with a field for every option of any entry, None by default; its help says whose it is.

    entries: the tables of options of every entry (a framework has one for each kind of backbone). owner: what decides
    a default that differs between entries, e.g. ``framework``. group: of the options in the command's help.
    """
    declared = [(entry, *item) for entry, tables in entries.items() for table in tables for item in table.items()]
    fields: list[Any] = []
    for option_name in dict.fromkeys(option.name for _, option, _ in declared):
        found = [item for item in declared if item[1].name == option_name]
        kind = found[0][1].kind
        assert all(option.kind is kind for _, option, _ in found), f"{option_name} is declared with two types"
        fields.append((option_name, Annotated[kind | None, _help(found, list(entries), owner)], field(default=None)))
    return make_dataclass(name, fields, frozen=True, kw_only=True, namespace={"GROUP": group})


def _help(found: list[tuple[str, Option, Any]], entries: list[str], owner: str) -> str:
    """``swav, dino: number of ... (default: 2)``; each meaning with the entries that give the option this meaning."""
    meanings: dict[str, list[str]] = {}
    for entry, option, _ in found:
        names = meanings.setdefault(option.help, [])
        names += [] if entry in names else [entry]
    texts = [f"{_names(names, entries)}{text}" for text, names in meanings.items()]
    values = {str(value) for _, _, value in found}
    default = _shown(found[0][2]) if len(values) == 1 else f"the {owner}'s"
    return f"{'; '.join(texts)} (default: {default})"


def _names(names: list[str], entries: list[str]) -> str:
    others = [entry for entry in entries if entry not in names]
    if not others:
        return ""
    return f"all but {', '.join(others)}: " if len(others) <= 2 < len(names) else f"{', '.join(names)}: "


def _shown(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def option_names(tables: Iterable[Defaults]) -> list[str]:
    """Names of all options of the tables, each once."""
    return list(dict.fromkeys(option.name for table in tables for option in table))


def own_values(defaults: Defaults, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of an entry's options, given or default. `ConfigError` for one outside its range."""
    values = {
        option.name: default if given.get(option.name) is None else given[option.name]
        for option, default in defaults.items()
    }
    for option in defaults:
        option.check(values[option.name])
    return values
