"""Which command writes a column or artifact, for error messages. The packages with a stage say it, each in `WRITES`."""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

STAGES = "viewkit.pipelines"
"""Where the packages are. They are imported by name when an error needs them; their `__init__` holds nothing else."""


@cache
def writers() -> Mapping[str, str]:
    """Name of a column or artifact -> the command that writes it, e.g. ``{"genview": "viewkit generate"}``."""
    packages = [each.name for each in pkgutil.iter_modules(import_module(STAGES).__path__) if each.ispkg]
    declared = [getattr(import_module(f"{STAGES}.{name}"), "WRITES", {}) for name in packages]
    return {part: f"viewkit {command}" for each in declared for part, command in each.items()}


def command_for(name: str, stage: str | None = None) -> str | None:
    """The command that writes `name`. stage: of its identity, for names that users choose. None: nobody knows."""
    folder = name.partition("/")[0]
    general = f"{folder}/NAME" if folder in ("runs", "compare") and name.count("/") == 1 else name
    return writers().get(general, None if stage is None else f"viewkit {stage}")
