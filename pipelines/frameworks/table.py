"""The frameworks by name."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from viewkit.pipelines.frameworks.card import Card

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework

HERE = __name__.rpartition(".")[0]

FRAMEWORKS: dict[str, str] = {
    "simclr": f"{HERE}.simclr:CARD",
    "moco_v1": f"{HERE}.moco:V1",
    "moco_v2": f"{HERE}.moco:V2",
    "moco_v3": f"{HERE}.moco_v3:CARD",
    "byol": f"{HERE}.byol:CARD",
    "simsiam": f"{HERE}.simsiam:CARD",
    "swav": f"{HERE}.swav:CARD",
    "dino": f"{HERE}.dino:CARD",
    "vicreg": f"{HERE}.vicreg:CARD",
    "barlow_twins": f"{HERE}.barlow_twins:CARD",
}
"""Name -> ``module:card``. This line is all that a new framework needs beside its file, wherever that is."""


@cache
def card_of(name: str) -> Card:
    """The card of a framework of the table."""
    module, _, card = FRAMEWORKS[name].partition(":")
    found: Card = getattr(import_module(module), card)
    assert found.name == name, f"the table has '{name}' where the card says '{found.name}'"
    return found


def cards() -> dict[str, Card]:
    """All cards by name."""
    return {name: card_of(name) for name in FRAMEWORKS}


@runtime_checkable
class FrameworkSettings(Protocol):
    """What of a run's settings is needed to create its framework. own: the framework's own options."""

    @property
    def framework(self) -> str: ...
    @property
    def own(self) -> Mapping[str, Any]: ...
    @property
    def seed(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def fit_momentum(self) -> bool: ...


def create_framework(
    backbone: "Backbone", settings: FrameworkSettings, *, steps: int, steps_per_epoch: int | None = None
) -> "Framework":
    """The framework of the settings around `backbone`.

    steps: of the whole training; steps_per_epoch: what options in epochs are measured by, steps / epochs by default.
    """
    epoch = steps / settings.epochs if steps_per_epoch is None else steps_per_epoch
    card = card_of(settings.framework)
    return card.create(
        backbone,
        settings.own,
        seed=settings.seed,
        steps=steps,
        steps_per_epoch=epoch,
        fit_momentum=settings.fit_momentum,
    )
