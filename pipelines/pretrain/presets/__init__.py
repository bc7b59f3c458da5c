"""The papers' experiments, one TOML file each, for `viewkit pretrain --preset NAME`.

A file says what it repeats (`title`), where its numbers are written (`source`), what was taken where text and code
differ or are silent (`notes`), and the options themselves (`[options]`).
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from viewkit.pipelines.experiments.experiment import pretrain_options

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One experiment. options: values of `PretrainConfig`, by their names there."""

    name: str
    title: str
    source: str
    notes: tuple[str, ...]
    options: dict[str, Any]


@cache
def presets() -> dict[str, Preset]:
    """All presets by name, in alphabetical order."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.toml"))}


def _read(path: Path) -> Preset:
    content = tomllib.loads(path.read_text())
    return Preset(
        name=path.stem,
        title=content["title"],
        source=content["source"],
        notes=tuple(content["notes"]),
        options=dict(content["options"]),
    )


def preset_options(name: str) -> dict[str, Any]:
    """The options of a preset, or of a run of an experiment (``EXPERIMENT/RUN``)."""
    if name not in presets():
        return pretrain_options(name)
    return dict(presets()[name].options)
