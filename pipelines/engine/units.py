"""What is handed out to workers, in the words of errors: shards of a column, parts of a fit, runs of a comparison."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from viewkit.shards.receipt import shard_name


class Unit(NamedTuple):
    """number: its name among those of one job. task: what a worker is given, picklable; of a column the shard."""

    number: int
    task: Any


def shard_units(shards: Sequence[int]) -> list[Unit]:
    return [Unit(shard, shard) for shard in shards]


@dataclass(frozen=True)
class Words:
    """one: what a unit is called. named: one of them. kept: whether what is finished is there for the next run."""

    one: str = "shard"
    named: Callable[[int], str] = lambda shard: f"shard {shard_name(shard)}"
    kept: bool = True

    @property
    def rest(self) -> str:
        """End of an error's line, what becomes of that which is finished."""
        return ", what is finished is kept" if self.kept else ""

    @property
    def again(self) -> str:
        """What to do, at the end of an error's line."""
        return f"run the same command again{self.rest or ', it starts this stage over'}"


SHARDS = Words()
