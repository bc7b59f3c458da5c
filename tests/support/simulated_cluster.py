"""A cluster made up of numbers, driven by the scheduler's own code: rates, deaths, nodes that come and go.

Time is simulated, so an hour on a thousand devices is a fraction of a second.
"""

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from viewkit.pipelines.engine.schedule import Drop, Give, Limits, Schedule, Start


@dataclass(frozen=True, kw_only=True)
class SimulatedNode:
    """seats: devices. seconds: of a shard on one of them. spread: seconds are times 1 ... 1 + spread, at random.
    from_s, until_s: when it is there. start_s: how long a worker takes to start."""

    seats: int = 1
    seconds: float = 10.0
    spread: float = 0.0
    from_s: float = 0.0
    until_s: float = float("inf")
    start_s: float = 1.0
    unfit: bool = False


@dataclass
class Outcome:
    """seconds: until the last shard was done. given: (shard, worker, node) of every hand-out. by_node: shards each."""

    seconds: float = 0.0
    given: list[tuple[int, int, str]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    by_node: dict[str, int] = field(default_factory=dict)
    most_workers: int = 0


def simulate(
    shards: Sequence[int],
    nodes: Mapping[str, SimulatedNode],
    limits: Limits | None = None,
    *,
    dies: Callable[[int, str], bool] = lambda shard, node: False,
    look_s: float = 60.0,
    noticed_s: float = 3.0,
    seed: int = 0,
) -> Outcome:
    """Run all shards. dies: whether a worker on the node dies over the shard, half way through.

    look_s: how often nodes are looked at. noticed_s: how long after its node a worker is known to be dead. Raises what
    the scheduler raises.
    """
    schedule, draw, found = Schedule(shards, limits or Limits()), random.Random(seed), Outcome()
    events: list[tuple[float, int, str, int]] = []
    count = 0

    def later(at: float, kind: str, worker: int) -> None:
        nonlocal count
        count += 1
        heapq.heappush(events, (at, count, kind, worker))

    where: dict[int, str] = {}
    later(0.0, "look", -1)
    now = 0.0
    while schedule.undone:
        now, _, kind, worker = heapq.heappop(events)
        if kind == "look":
            schedule.nodes({name: each.seats for name, each in nodes.items() if each.from_s <= now < each.until_s})
            later(now + look_s, "look", -1)
        elif worker not in schedule.crew:
            continue  # dropped
        elif kind == "ready" and nodes[where[worker]].unfit:
            schedule.unfit(worker, "it does not see the dataset")
        elif kind == "ready":
            schedule.ready(worker)
        elif kind == "done":
            shard = schedule.done(worker)
            if shard is not None:
                found.done.append(shard)
                found.by_node[where[worker]] = found.by_node.get(where[worker], 0) + 1
        else:
            schedule.died(worker, now, "killed", with_node=kind == "node died")
        for action in schedule.actions(now):
            if isinstance(action, Drop):
                continue
            node = nodes[where[action.worker] if isinstance(action, Give) else action.node]
            if isinstance(action, Start):
                where[action.worker] = action.node
                end, then = now + node.start_s, "ready"
            else:
                found.given.append((action.shard, action.worker, where[action.worker]))
                end, then = now + node.seconds * (1 + node.spread * draw.random()), "done"
                if dies(action.shard, where[action.worker]):
                    end, then = (now + end) / 2, "died"
            later(*((node.until_s + noticed_s, "node died") if end >= node.until_s else (end, then)), action.worker)
        found.most_workers = max(found.most_workers, len(schedule.crew))
    found.seconds = now
    return found
