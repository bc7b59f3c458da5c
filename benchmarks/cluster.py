"""A billion images on 8 and on 512 GPUs, in simulated time: the real scheduler, nodes that fail, stragglers.

What a GPU does in a second is an input, as is how often a node fails; `RATES` and `Cluster` have them. Shards are done
again when their node fails, a worker loads its model whenever it starts, and the last shards are handed out twice.
"""

import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Fact, main, sized

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from simulated_cluster import SimulatedNode, simulate

from viewkit.pipelines.engine.schedule import Limits

IMAGES = 1_000_000_000
ROWS_PER_SHARD = 1024
RATES = {"unCLIP": 4.0, "own": 400.0}
"""Images a second of one GPU: about the goals of `make gpu` on an H200. Inputs, measured nowhere yet."""
DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """gpus: of which a node has at most eight. days_between: failures of one node, on average (16,384 H100s in 2,048
    nodes had 419 in 54 days, Llama Team 2024, table 5: 264 days; this is five times as bad). away_s: until it is back.
    start_s: of a worker with its model. spread: a shard takes up to so much longer, at random. deaths: share of the
    shards over which a worker dies of something else."""

    gpus: int
    days_between: float = 50.0
    away_s: float = 3600.0
    start_s: float = 120.0
    spread: float = 0.1
    deaths: float = 1e-5

    def nodes(self, seconds: float, horizon_s: float) -> dict[str, SimulatedNode]:
        """Every node as the stretches of time in which it is there."""
        return {
            f"{number}.{part}": SimulatedNode(
                seats=min(8, self.gpus),
                seconds=seconds,
                spread=self.spread,
                from_s=begin,
                until_s=end,
                start_s=self.start_s,
            )
            for number in range(-(-self.gpus // 8))
            for part, (begin, end) in enumerate(self._stretches(random.Random(number), horizon_s))
        }

    def _stretches(self, draw: random.Random, horizon_s: float) -> Iterator[tuple[float, float]]:
        begin = 0.0
        while begin < horizon_s:
            end = begin + draw.expovariate(1 / (self.days_between * DAY_S))
            yield begin, end
            begin = end + self.away_s


def simulated(cluster: Cluster, rate: float, images: int) -> tuple[float, float, float]:
    """(seconds until all is done, GPU time over that of the images alone, hand-outs a shard)."""
    shards, seconds = -(-images // ROWS_PER_SHARD), ROWS_PER_SHARD / rate
    least_s = shards * seconds * (1 + cluster.spread / 2) / cluster.gpus
    draw = random.Random(0)
    nodes = cluster.nodes(seconds, 2 * least_s + DAY_S)
    limits = Limits(alone_s=2 * cluster.away_s)
    found = simulate(
        range(shards), nodes, limits, dies=lambda *_: draw.random() < cluster.deaths, look_s=max(60.0, least_s / 5000)
    )
    return found.seconds, found.seconds / least_s, len(found.given) / shards


def run(rounds: int) -> tuple[Sequence[Fact], Sequence[str]]:
    """Each once: the same seeds give the same numbers, but for the scheduler's own time."""
    found = []
    images = sized(IMAGES, 100_000)
    for name, rate in RATES.items():
        for gpus in (8, 512):
            begin = time.process_time()
            seconds, over, handed = simulated(Cluster(gpus=gpus), rate, images)
            spent = time.process_time() - begin
            what = f"{name}, {rate:g} images/s a GPU, {gpus} GPUs"
            found += [
                Fact(f"{what}: days", seconds / DAY_S),
                Fact(f"{what}: GPU time / that of the images alone", over),
                Fact(f"{what}: hand-outs a shard", handed),
                Fact(f"{what}: scheduler and simulation, us a shard", 1e6 * spent / -(-images // ROWS_PER_SHARD)),
            ]
    return found, []


if __name__ == "__main__":
    main("cluster", run)
