"""What a framework's loss is like, which decides what views, weights and multi-view losses it can be trained with."""

from dataclasses import dataclass
from typing import Literal

Trait = Literal["by_direction", "momentum_keys"]

TRAITS: dict[Trait, str] = {
    "by_direction": "a loss that compares directions",
    "momentum_keys": "keys of a momentum encoder",
}
"""Traits that a multi-view loss may need, in words."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """per_row: the loss is a mean over rows, so rows can be weighted and a pair judged by its own loss.
    by_direction: it compares directions, so the mean of several views' unit vectors can stand for them.
    momentum_keys: it is an InfoNCE against keys of a momentum encoder.
    multi_crop: it takes several crops of two sizes, and has the option `num_globals`.
    couples_rows: a row's target depends on the views of all rows, so the views of a row cannot be chosen by themselves.
    rising_momentum: the momentum rises over the training, so that `build` takes its number of `steps`.
    """

    per_row: bool = True
    by_direction: bool = False
    momentum_keys: bool = False
    multi_crop: bool = False
    couples_rows: bool = False
    rising_momentum: bool = False
