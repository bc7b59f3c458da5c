"""One stream of random numbers for every (row, view): Philox with the row's id as key.

counter = (block, view, round, domain of seed and stage), so a number depends on where it is used and on nothing else.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int, UInt64

from viewkit.pipelines.engine.seeds import domain
from viewkit.pipelines.views.philox import philox, uniforms
from viewkit.shards.errors import ConfigError


@dataclass(frozen=True)
class Streams:
    """The Philox streams of m (row, view) places."""

    ids: UInt64[np.ndarray, "m 2"]
    views: UInt64[np.ndarray, " m"]
    round: int
    domain: int

    def uniforms(
        self, block: int | Int[np.ndarray, " k"], at: Int[np.ndarray, " k"] | None = None
    ) -> Float64[np.ndarray, "q 4"]:
        """Four uniforms in [0, 1) from one block (or one block each), for all places or for those `at`."""
        ids, views = (self.ids, self.views) if at is None else (self.ids[at], self.views[at])
        counters = np.empty((len(ids), 4), dtype=np.uint64)
        counters[:, 0] = np.asarray(block) + 1  # numpy's own stream, started at block 0, gives this block first
        counters[:, 1] = views
        counters[:, 2] = self.round
        counters[:, 3] = self.domain
        return uniforms(philox(counters, ids))

    def places(self, first: int, count: int) -> "Streams":
        """For one place a row, with `count` words from `first` on in the place of the view."""
        views = np.tile(np.arange(first, first + count, dtype=np.uint64), len(self.ids))
        return Streams(np.repeat(self.ids, count, axis=0), views, self.round, self.domain)


def open_streams(ids: UInt64[np.ndarray, "n 2"], seed: int, stage: str, round: int) -> Streams:
    if not 0 <= round < 2**32:
        raise ConfigError(f"round is {round}; needed a whole number in 0 ... 2^32 - 1")
    if seed < 0:
        raise ConfigError(f"seed is {seed}; needed a whole number from 0 on")
    # "/views" keeps these streams apart from `seeds.stream`, which has the same key words at round 0 and view 0.
    return Streams(ids, np.zeros(len(ids), dtype=np.uint64), round, domain(seed, f"{stage}/views"))
