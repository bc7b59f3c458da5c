"""Who does which shard on a cluster: starts, hand-outs, deaths, stragglers. Events in, actions out.

Nothing here knows a cluster or a clock: `on_ray` drives it with what Ray says, tests and simulations with what they
make up. The first receipt of a shard counts, so a shard that is done twice costs time and never correctness. Parts of a
fit are handed out in the same way, by their numbers.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viewkit.pipelines.engine.units import SHARDS, Words
from viewkit.shards.errors import DataError

MOST_REST_S = 300.0
"""How long a node on which workers do not start is left alone at most."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """workers: at the same time, None: one per device. deaths: workers that may die over one shard; losses: those that
    may go down with their node while they do it. in_a_row: workers lost with no shard finished in between, or twice as
    many as there were at the same time, if that is more. copies: workers that do one of the last shards at the same
    time. start_s: a worker that has not answered by then is dropped. rest_s: how long a node is left alone on which a
    worker did not start, doubled every time. alone_s: how long to wait for new nodes when nobody is left."""

    workers: int | None = None
    deaths: int = 3
    losses: int = 10
    in_a_row: int = 8
    copies: int = 2
    start_s: float = 300.0
    rest_s: float = 5.0
    alone_s: float = 60.0


@dataclass(frozen=True)
class Start:
    """Start a worker on a node; then report `Schedule.ready`, `Schedule.unfit` or `Schedule.died`."""

    worker: int
    node: str


@dataclass(frozen=True)
class Give:
    """Let a worker do a shard; then report `Schedule.done` or `Schedule.died`."""

    worker: int
    shard: int


@dataclass(frozen=True)
class Drop:
    """Kill a worker that took too long to start; nothing more is to be reported of it."""

    worker: int


Action = Start | Give | Drop


@dataclass
class _Worker:
    node: str
    since: float
    shard: int | None = None


@dataclass
class _Node:
    """seats: workers that fit on it; 0 once it is gone. rest_s: the next rest. until: end of the rest at hand."""

    seats: int
    rest_s: float
    until: float = 0.0
    unfit: str = ""


class Schedule:
    """Times are seconds of any one clock. Raises `DataError` where the work cannot go on."""

    def __init__(self, shards: Sequence[int], limits: Limits, words: Words = SHARDS) -> None:
        self.limits, self.words = limits, words
        self.undone = set(shards)
        self.crew: dict[int, _Worker] = {}
        self._left = deque(shards)
        self._starting: set[int] = set()
        self._idle: dict[int, None] = {}  # in the order in which they became so
        self._seats_may_be_free = True
        self._begun: dict[int, float] = {}  # shard in somebody's hands -> when it was first given
        self._holders: dict[int, set[int]] = {}
        self._nodes: dict[str, _Node] = {}
        self._deaths: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()
        self._started = self._most = self._in_a_row = 0
        self._alone_since: float | None = None
        self._last = "no node has offered a place"

    def more(self, shards: Sequence[int]) -> None:
        """Others that are to be done, by the same workers."""
        self.undone.update(shards)
        self._left.extend(shards)

    # events

    def nodes(self, seats: Mapping[str, int]) -> None:
        """What the cluster shows now: node -> workers that fit on it."""
        self._seats_may_be_free = True
        for name in self._nodes.keys() - seats.keys():
            self._nodes[name].seats = 0
        for name, count in seats.items():
            self._nodes.setdefault(name, _Node(count, self.limits.rest_s)).seats = count

    def ready(self, worker: int) -> None:
        """It has answered, and can be given shards."""
        self._starting.discard(worker)
        self._idle[worker] = None
        self._nodes[self.crew[worker].node].rest_s = self.limits.rest_s

    def done(self, worker: int) -> int | None:
        """It has finished its shard: the shard, or None where another one was first."""
        shard, self.crew[worker].shard = self.crew[worker].shard, None
        assert shard is not None
        self._idle[worker] = None
        self._in_a_row = 0
        if shard not in self.undone:
            return None
        self.undone.discard(shard)
        del self._holders[shard], self._begun[shard]
        return shard

    def unfit(self, worker: int, reason: str) -> bool:
        """Its node cannot be used, by it or by any other worker; whether that is new."""
        node = self._nodes[self._leave(worker).node]
        is_new, node.unfit, self._last = not node.unfit, reason, reason
        return is_new

    def died(self, worker: int, now: float, reason: str, *, with_node: bool = False) -> None:
        """It is gone, whatever it was doing."""
        is_new = worker in self._starting
        gone = self._leave(worker)
        self._last, self._in_a_row = reason, self._in_a_row + 1
        if is_new:
            node = self._nodes[gone.node]
            node.until, node.rest_s = now + node.rest_s, min(2 * node.rest_s, MOST_REST_S)
        if with_node:
            self._nodes[gone.node].seats = 0  # until it is shown again
        if gone.shard in self.undone:
            self._take_back(gone.shard, worker, with_node=with_node)
        if self._in_a_row >= max(self.limits.in_a_row, 2 * self._most):
            raise DataError(
                f"{self._in_a_row} workers were lost in a row and no {self.words.one} was finished in between (the "
                f"last: {reason}); see to the nodes and {self.words.again}"
            )

    def _leave(self, worker: int) -> _Worker:
        self._starting.discard(worker)
        self._idle.pop(worker, None)
        self._seats_may_be_free = True
        return self.crew.pop(worker)

    def _take_back(self, shard: int, worker: int, *, with_node: bool) -> None:
        self._holders[shard].discard(worker)
        if not self._holders[shard]:
            self._left.appendleft(shard)
            del self._holders[shard], self._begun[shard]
        (self._losses if with_node else self._deaths)[shard] += 1
        if self._deaths[shard] >= self.limits.deaths or self._losses[shard] >= self.limits.losses:
            count = self._deaths[shard] + self._losses[shard]
            raise DataError(
                f"{self.words.named(shard)}: its worker died {count} times (the last: {self._last}), probably for want "
                f"of memory; give a worker more of it{self.words.rest}"
            )

    # actions

    def actions(self, now: float) -> list[Action]:
        """What is to be done now; it counts as done."""
        return [*self._drops(now), *self._starts(now), *self._hand_outs(now)]

    def _drops(self, now: float) -> list[Drop]:
        late = sorted(each for each in self._starting if now - self.crew[each].since >= self.limits.start_s)
        for number in late:
            self.died(
                number, now, f"it did not start within {self.limits.start_s:g} s; its node may be in use by others"
            )
        return [Drop(number) for number in late]

    def _starts(self, now: float) -> list[Start]:
        """Workers for all seats, spread over the nodes, never more than there are shards to do."""
        wanted = min(len(self.undone), self.limits.workers or len(self.undone)) - len(self.crew)
        free = self._free_seats(now) if wanted > 0 and self._seats_may_be_free else {}
        started = []
        while wanted > 0 and free:
            node = max(free, key=lambda name: free[name])
            started.append(Start(self._started, node))
            self.crew[self._started] = _Worker(node, now)
            self._starting.add(self._started)
            self._started, wanted = self._started + 1, wanted - 1
            free[node] -= 1
            if not free[node]:
                del free[node]
        self._most = max(self._most, len(self.crew))
        self._refuse_to_be_alone(now)
        return started

    def _free_seats(self, now: float) -> dict[str, int]:
        taken = Counter(worker.node for worker in self.crew.values())
        usable = {name: node for name, node in self._nodes.items() if not node.unfit and node.until <= now}
        self._seats_may_be_free = any(node.until > now for node in self._nodes.values())
        free = {name: node.seats - taken[name] for name, node in usable.items()}
        return {name: count for name, count in free.items() if count > 0}

    def _refuse_to_be_alone(self, now: float) -> None:
        if self.crew or not self.undone:
            self._alone_since = None
            return
        self._alone_since = now if self._alone_since is None else self._alone_since
        there = [node for node in self._nodes.values() if node.seats]
        hopeless = bool(there) and all(node.unfit for node in there)
        if hopeless or now - self._alone_since >= self.limits.alone_s:
            raise DataError(
                f"no worker is left, and {len(self.undone)} {self.words.one}s are not done (the last: {self._last}); "
                f"see to the nodes and {self.words.again}"
            )

    def _hand_outs(self, now: float) -> list[Give]:
        given = []
        for number in list(self._idle):
            shard = self._left.popleft() if self._left else self._straggler(now)
            if shard is None:
                break
            del self._idle[number]
            self.crew[number].shard = shard
            self._begun.setdefault(shard, now)
            self._holders.setdefault(shard, set()).add(number)
            given.append(Give(number, shard))
        return given

    def _straggler(self, now: float) -> int | None:
        """Of the last shards the one that was begun first, to be done a second time; none over which a worker died, and
        none that has just been given."""
        for shard in self._begun:  # in the order in which they were begun
            free = len(self._holders[shard]) < self.limits.copies and self._begun[shard] < now
            if free and not self._deaths[shard] and not self._losses[shard]:
                return shard
        return None
