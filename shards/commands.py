"""Which command writes a column or artifact, for error messages. The packages with a stage say it: each in `WRITES`,
and in `ALSO_WRITES` what is another command's by default."""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

STAGES = "viewkit.pipelines"
"""Where the packages are. They are imported by name when an error needs them; their `__init__` holds nothing else."""


@cache
def writers() -> Mapping[str, str]:
    """Name of a column or artifact -> the command that writes it, e.g. ``{"genview": "viewkit generate"}``."""
    return {part: f"viewkit {command}" for part, command in _declared("WRITES")}


@cache
def other_writers() -> frozenset[tuple[str, str]]:
    """(name, stage) where another stage than that of `writers` may have written it, e.g. ``("pairs", "draw")``."""
    return frozenset(_declared("ALSO_WRITES"))


def _declared(table: str) -> list[tuple[str, str]]:
    packages = [each.name for each in pkgutil.iter_modules(import_module(STAGES).__path__) if each.ispkg]
    declared = [getattr(import_module(f"{STAGES}.{name}"), table, {}) for name in packages]
    return [entry for each in declared for entry in each.items()]


def command_for(name: str, stage: str | None = None) -> str | None:
    """The command that writes `name`. stage: of its identity, where it is there: it counts for names that users choose,
    and for `other_writers`. None: nobody knows."""
    folder = name.partition("/")[0]
    general = f"{folder}/NAME" if folder in ("runs", "compare") and name.count("/") == 1 else name
    if stage is not None and (general not in writers() or (general, stage) in other_writers()):
        return f"viewkit {stage}"
    return writers().get(general)
