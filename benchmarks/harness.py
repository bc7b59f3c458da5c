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

from results import RESULTS, Program, load_goals, provenance, save, shown_ratio, shown_time

Work = Callable[[], object]

ROUNDS = 7
"""Of a comparison, unless others are asked for."""
_smoke = False
"""Whether `--smoke` was given: every comparison runs both sides once, untimed, to show that the program works."""


@dataclass(frozen=True)
class Row:
    """One comparison. Times are medians, in seconds for each unit of work."""

    what: str
    ours_s: float
    peer_s: float
    ratio: float
    """Speed of ours over the peer's; with `at_most`, time of ours over the peer's."""
    lowest: float
    highest: float
    rounds: int
    at_most: bool
    others_cores: float
    """Cores that other processes used during the comparison."""


@dataclass(frozen=True)
class Fact:
    """A measured number that is no ratio of times, e.g. an error in levels."""

    what: str
    value: float


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


@dataclass(frozen=True)
class Took:
    """What work returns that has timed itself, e.g. without the start of its processes."""

    seconds: float


def seconds(work: Work, least_s: float = 0.0) -> float:
    """Time of one call, averaged over as many calls as fill `least_s`; its own count where it returns `Took`."""
    calls, counted, start = 0, 0.0, time.perf_counter()
    while True:
        before = time.perf_counter()
        found = work()
        counted += found.seconds if isinstance(found, Took) else time.perf_counter() - before
        calls += 1
        if time.perf_counter() - start >= least_s:
            return counted / calls


def compare(
    what: str,
    ours: Work,
    peer: Work,
    rounds: int = ROUNDS,
    *,
    units: int = 1,
    at_most: bool = False,
    least_s: float = 0.1,
) -> Row:
    """Run both once to warm up, then `rounds` times in turn; with `--smoke` once each.

    what: as goals.toml has it. units: of work in one call (of either). at_most: the ratio is of times, else of speeds.
    """
    if _smoke:
        first, second = seconds(ours), seconds(peer)
        speed = first / second if at_most else second / first
        return Row(what, first / units, second / units, speed, speed, speed, 1, at_most, 0.0)
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
        what=what,
        ours_s=statistics.median(mine for mine, _ in times) / units,
        peer_s=statistics.median(other for _, other in times) / units,
        ratio=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        rounds=rounds,
        at_most=at_most,
        others_cores=max(0.0, (machine_after - machine) - (own_after - own)) / wall,
    )


def table(rows: Sequence[Row | Fact], program: Program) -> str:
    """The rows as text, one line each."""
    width = max(len(row.what) for row in rows)
    lines = [f"{'':{width}}  {'ours':>9} {'peer':>9}  {'ratio [spread]':>20}  {'goal':>8}        others' cores"]
    for row in rows:
        goal = program.goal(row.what)
        verdict = "" if _smoke or not goal.text else "ok" if goal.holds(value_of(row)) else "MISSED"
        if isinstance(row, Fact):
            lines.append(f"{row.what:{width}}  {row.value:9.3g} {'':9}  {'':20}  {goal.text:>8}  {verdict}")
            continue
        times = f"{shown_time(row.ours_s):>9} {shown_time(row.peer_s):>9}"
        spread = shown_ratio(asdict(row))
        lines.append(f"{row.what:{width}}  {times}  {spread:>20}  {goal.text:>8}  {verdict:6}  {row.others_cores:.2f}")
    return "\n".join(lines)


def value_of(row: Row | Fact) -> float:
    """The number that has a goal."""
    return row.value if isinstance(row, Fact) else row.ratio


def check_direction(row: Row | Fact, program: Program) -> None:
    """A ratio of times has an upper goal, one of speeds a lower one."""
    goal = program.goal(row.what)
    wrong = goal.least if isinstance(row, Row) and row.at_most else goal.most if isinstance(row, Row) else None
    if wrong is not None:
        sys.exit(f"benchmarks/goals.toml: [{program.name}] '{row.what}' is a ratio of "
                 f"{'times' if goal.least is not None else 'speeds'}; its goal is on the wrong side")  # fmt: skip


def main(name: str, run: Callable[[int], tuple[Sequence[Row | Fact], Sequence[str]]], *, on_gpu: bool = False) -> None:
    """The command line of a benchmark. name: of the program, its section in goals.toml. on_gpu: it takes one where
    there is one, and keeps those results apart. `run(rounds)` returns rows, and what could not be compared and why."""
    program = load_goals()[name]
    parser = argparse.ArgumentParser(description=program.title)
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"interleaved rounds of every row (default {ROUNDS})"
    )
    parser.add_argument("--smoke", action="store_true", help="run both sides of every comparison once, without goals")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--out", type=Path, help="folder for NAME.json, from which docs/benchmarks.md is made")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; needed at least 1")
    if options.smoke and (options.out == RESULTS or options.check):
        parser.error("--smoke measures nothing; leave it out, or give --out another folder and no --check")
    global _smoke
    _smoke = options.smoke
    rows, left_out = run(options.rounds)
    for row in rows:
        check_direction(row, program)
    found = {**provenance(program), "rows": [asdict(row) for row in rows], "left_out": list(left_out)}
    if options.out is not None:
        print(save(options.out, f"{name}{'-gpu' if on_gpu and has_gpu() else ''}", found), file=sys.stderr)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{program.title}\n\n{table(rows, program)}")
        for line in left_out:
            print(f"not compared: {line}")
    if options.check and not all(program.goal(row.what).holds(value_of(row)) for row in rows):
        sys.exit(1)


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
