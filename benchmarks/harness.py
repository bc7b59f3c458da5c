"""Time two ways of doing one thing in one process, turn by turn, and print the ratio with its spread.

Absolute times depend on the machine and on who else uses it; the ratio of two neighbours in time much less. So every
round runs ours and the peer once, in an alternating order, and the ratio is the median of the rounds' ratios. How
many cores other processes used meanwhile is printed too: a tight spread does not show contention.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

Work = Callable[[], object]

_smoke = False
"""Whether `--smoke` was given: every comparison runs both sides once, untimed, to show that the program works."""


@dataclass(frozen=True)
class Row:
    """One comparison. Times are medians, in seconds for each unit of work."""

    name: str
    ours_s: float
    peer_s: float
    ratio: float
    """Speed of ours over the peer's; with `at_most`, time of ours over the peer's."""
    lowest: float
    highest: float
    target: float | None
    at_most: bool
    others_cores: float
    """Cores that other processes used during the comparison."""

    @property
    def passed(self) -> bool:
        """Whether the target is met; True where there is none."""
        if self.target is None:
            return True
        return self.ratio <= self.target if self.at_most else self.ratio >= self.target


@dataclass(frozen=True)
class Fact:
    """A measured number with a bound that is no ratio of times, e.g. an error in levels."""

    name: str
    value: float
    most: float

    @property
    def passed(self) -> bool:
        """Whether the value keeps the bound."""
        return self.value <= self.most


def sized(full: int, smoke: int) -> int:
    """How much work to do: `smoke` with `--smoke`, else `full`."""
    return smoke if _smoke else full


def _cpu_seconds() -> tuple[float, float]:
    """Busy seconds of the whole machine and of this process; (0, 0) where /proc/stat does not exist."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0, 0.0
    user, nice, system, _, _, interrupts, soft, steal = map(int, stat.read_text().split()[1:9])
    own = os.times()
    machine = (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")
    return machine, own.user + own.system + own.children_user + own.children_system


def seconds(work: Work, least_s: float = 0.0) -> float:
    """Time of one call, averaged over as many calls as fill `least_s`."""
    calls, start = 0, time.perf_counter()
    while True:
        work()
        calls += 1
        spent = time.perf_counter() - start
        if spent >= least_s:
            return spent / calls


def compare(
    name: str,
    ours: Work,
    peer: Work,
    target: float | None,
    rounds: int = 5,
    *,
    units: int = 1,
    at_most: bool = False,
    least_s: float = 0.1,
) -> Row:
    """Run both once to warm up, then `rounds` times in turn; with `--smoke` once each.

    units: of work in one call (of either). target: least speed of ours over the peer's; with `at_most` the largest
    time of ours over the peer's.
    """
    if _smoke:
        first, second = seconds(ours), seconds(peer)
        speed = first / second if at_most else second / first
        return Row(name, first / units, second / units, speed, speed, speed, None, at_most, 0.0)
    ours(), peer()
    machine, own = _cpu_seconds()
    start = time.perf_counter()
    times: list[tuple[float, float]] = []
    for turn in range(rounds):
        if turn % 2:
            second, first = seconds(peer, least_s), seconds(ours, least_s)
        else:
            first, second = seconds(ours, least_s), seconds(peer, least_s)
        times.append((first, second))
    wall = time.perf_counter() - start
    machine_after, own_after = _cpu_seconds()
    ratios = [mine / other if at_most else other / mine for mine, other in times]
    return Row(
        name=name,
        ours_s=statistics.median(mine for mine, _ in times) / units,
        peer_s=statistics.median(other for _, other in times) / units,
        ratio=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        target=target,
        at_most=at_most,
        others_cores=max(0.0, (machine_after - machine) - (own_after - own)) / wall,
    )


def _time(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def table(rows: Sequence[Row | Fact]) -> str:
    """The rows as text, one line each."""
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}}  {'ours':>9} {'peer':>9}  {'ratio [spread]':>20}  {'target':>8}        others' cores"]
    for row in rows:
        verdict = "ok" if row.passed else "MISSED"
        if isinstance(row, Fact):
            lines.append(f"{row.name:{width}}  {row.value:9.3g} {'':9}  {'':20}  <= {row.most:<5g}  {verdict}")
            continue
        spread = f"{row.ratio:.2f} [{row.lowest:.2f}-{row.highest:.2f}]"
        sign = "<=" if row.at_most else ">="
        target = "" if row.target is None else f"{sign} {row.target:g}"
        verdict = verdict if row.target is not None else ""
        times = f"{_time(row.ours_s):>9} {_time(row.peer_s):>9}"
        lines.append(f"{row.name:{width}}  {times}  {spread:>20}  {target:>8}  {verdict:6}  {row.others_cores:.2f}")
    return "\n".join(lines)


def main(title: str, run: Callable[[int], tuple[Sequence[Row | Fact], Sequence[str]]]) -> None:
    """The command line of a benchmark. `run(rounds)` returns rows, and what could not be compared and why."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of every comparison (default 5)")
    parser.add_argument("--smoke", action="store_true", help="run both sides of every comparison once, without targets")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; needed at least 1")
    global _smoke
    _smoke = options.smoke
    rows, left_out = run(options.rounds)
    if options.json:
        listed = [asdict(row) | {"passed": row.passed} for row in rows]
        print(json.dumps({"title": title, "rows": listed, "left_out": list(left_out)}, indent=2))
    else:
        print(f"{title}\n\n{table(rows)}")
        for line in left_out:
            print(f"not compared: {line}")
    if options.check and not all(row.passed for row in rows):
        sys.exit(1)
