"""Options of `viewkit compare`."""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from viewkit.pipelines.engine.ranges import check_above_zero, check_within
from viewkit.shards.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]{0,39}")
MAX_SEEDS = 100


def check_name(name: str) -> None:
    """`ConfigError` for a comparison's name that cannot be a folder's, or would run into the names of its runs."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"compare: name is '{name}'; use letters, digits, '_' and '.', e.g. fewer_steps")


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Compare ways of making pairs: equal images, steps, view specification and network; paired seeds; verdicts."""

    MAIN: ClassVar[tuple[str, ...]] = ("arms", "seeds", "lengths", "matters")

    arms: Annotated[
        str | None, "what is compared, separated by commas: runs of the experiment, or arms by name (default: its runs)"
    ] = None
    seeds: Annotated[int, "runs of every arm, seeds 0, 1, ...; fewer than 6 decide nothing"] = 6
    lengths: Annotated[
        str | None, "steps of the trainings, separated by commas; every arm runs at each (default: pretrain's)"
    ] = None
    reference: Annotated[str | None, "arm that the others are compared with (default: random, else the first)"] = None
    matters: Annotated[float, "difference in points that one would act on"] = 1.0
    controls: Annotated[
        bool, "also train the reference longer by what each more expensive arm costs, its offline stages included"
    ] = True
    other_spec: Annotated[bool, "allow arms whose views follow different specifications"] = False

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise ConfigError(
                f"compare: seeds is {self.seeds}: nothing is known of the spread between runs; give at least 2, and 6 "
                "for a verdict"
            )
        check_within(2, MAX_SEEDS, seeds=self.seeds)
        check_above_zero(matters=self.matters)
        self.steps_asked()
        self.arms_asked()

    def steps_asked(self) -> tuple[int, ...]:
        """The numbers in `lengths`, ascending; none where it is not given. `ConfigError` unless all are above 0."""
        words = [] if self.lengths is None else [word.strip() for word in self.lengths.split(",")]
        if not all(word.isascii() and word.isdigit() and 0 < int(word) < 10**9 for word in words):
            raise ConfigError(f"compare: lengths is {self.lengths!r}; it must be whole numbers above 0, e.g. '150,600'")
        if len(set(words)) != len(words):
            raise ConfigError(f"compare: lengths is {self.lengths!r}; name every one once, e.g. '150,600'")
        return tuple(sorted(int(word) for word in words))

    def arms_asked(self) -> tuple[str, ...]:
        """The names in `arms`, in their order; none where it is not given."""
        words = () if self.arms is None else tuple(word.strip() for word in self.arms.split(","))
        for word in words:
            if not word or words.count(word) > 1:
                raise ConfigError(f"compare: arms is {self.arms!r}; name every one once, e.g. 'random,vs2fi'")
        return words
