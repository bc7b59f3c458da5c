"""The nineteen corruptions by name, and the one function that applies them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from viewkit.pipelines.engine.seeds import stream
from viewkit.pipelines.evaluate.corruptions import blur, digital, noise, weather
from viewkit.pipelines.evaluate.corruptions.levels import LEVELS, SEVERITIES, LevelSet
from viewkit.pipelines.evaluate.corruptions.pixels import Image
from viewkit.shards.errors import ConfigError

_FAMILIES = (noise, blur, weather, digital)
CORRUPTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: getattr(next(family for family in _FAMILIES if hasattr(family, name)), name) for name in LEVELS}
)
"""Name, as the published files have it -> function of (image, its parameters, random generator)."""


def corrupt(image: Image, kind: str, severity: int, *, levels: LevelSet, seed: int, key: str) -> Image:
    """The image corrupted; what is random in it depends on (seed, key, kind, severity) alone.

    image: square, of the side that `levels` is meant for. severity: 1 ... 5.
    """
    if kind not in CORRUPTIONS or not 1 <= severity <= SEVERITIES:
        raise ConfigError(f"corruption is '{kind}' at severity {severity}; take 1 ... 5 of {', '.join(CORRUPTIONS)}")
    rng = stream(seed, "corruptions", key, kind, severity)
    return CORRUPTIONS[kind](image, LEVELS[kind][levels][severity - 1], rng)
