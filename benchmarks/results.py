"""What the benchmarks measured, benchmarks/results/*.json, what they aim at, goals.toml, and the page made of both.

    python benchmarks/results.py [--check]

writes docs/benchmarks.md and docs/scale.md from these files alone, or says whether they are fresh. No number of the
pages is typed by hand: `goals.toml` has every row of every program with its goal, and the first page's words; the
programs write the results. A result whose code has changed since is marked stale.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scale_page import scale_page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PAGE, SCALE = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "scale.md"
PACKAGES = ("torch", "torchvision", "numpy", "pillow", "timm", "webdataset", "lightly", "kornia", "albumentations",
            "diffusers", "scikit-learn")  # fmt: skip
"""Whose versions a result names, where they are installed."""


@dataclass(frozen=True)
class Goal:
    """One row of a program. least, most: what its number is to reach or to keep; neither: it is shown for comparison.

    reason: why it is missed, where that was measured.
    """

    what: str
    least: float | None = None
    most: float | None = None
    reason: str = ""

    def holds(self, value: float) -> bool:
        """Whether the value meets the goal; True where there is none."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def text(self) -> str:
        return f">= {self.least:g}" if self.least is not None else "" if self.most is None else f"<= {self.most:g}"


@dataclass(frozen=True)
class Program:
    """A section of goals.toml. command: as one types it. code: files and folders of the repository that its numbers
    depend on. about, after: words of the page, before the table and behind it."""

    name: str
    title: str
    command: str
    code: tuple[str, ...]
    about: str
    after: str
    goals: tuple[Goal, ...]

    def goal(self, what: str) -> Goal:
        """Of a row; leaves the program where goals.toml does not know it, for the page would not show it."""
        for goal in self.goals:
            if goal.what == what:
                return goal
        sys.exit(f"benchmarks/goals.toml: [{self.name}] has no row '{what}'; add it, with its goal")

    def code_digest(self) -> str:
        """Of every file that the numbers depend on, the program itself included."""
        hashed = hashlib.sha256()
        for name in (f"benchmarks/{self.name}.py", *self.code):
            place = ROOT / name
            files = [place] if place.is_file() else sorted(place.rglob("*"))
            for path in files:
                if path.is_file() and path.suffix in (".py", ".c", ".toml"):
                    hashed.update(f"{path.relative_to(ROOT).as_posix()}\n".encode() + path.read_bytes())
        return hashed.hexdigest()[:16]


def load_goals() -> dict[str, Program]:
    """Every program by its name, in the order of the page."""
    return load_goals_of((HERE / "goals.toml").read_text())


def load_goals_of(text: str) -> dict[str, Program]:
    """The programs of a text in the form of goals.toml."""
    tables = tomllib.loads(text)
    return {
        name: Program(
            name,
            table["title"],
            table["command"],
            tuple(table["code"]),
            table.get("about", "").strip(),
            table.get("after", "").strip(),
            tuple(Goal(**row) for row in table["rows"]),
        )
        for name, table in tables.items()
    }


def provenance(program: Program) -> dict[str, Any]:
    """What a result is of: commit, code, machine, versions, date."""
    return {
        "program": program.name,
        "commit": commit(),
        "code": program.code_digest(),
        "machine": machine(),
        "versions": {"python": platform.python_version(), **installed()},
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def save(folder: Path, name: str, found: Mapping[str, Any]) -> Path:
    """One file of results; whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    os.replace(part, path)
    return path


def commit() -> str:
    """Of the code that is run, with a + where files differ from it; empty outside of a checkout."""
    done = subprocess.run(
        ["git", "describe", "--always", "--abbrev=7", "--dirty=+", "--exclude", "*"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip()


def machine() -> str:
    """The processor with the cores this process may use, and the GPU where there is one."""
    import torch

    cores = len(os.sched_getaffinity(0))
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    found = f"{names[0] if names else platform.machine()}, {cores} of {os.cpu_count()} cores"
    return f"{torch.cuda.get_device_name()}; {found}" if torch.cuda.is_available() else found


def installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def shown_time(seconds: float) -> str:
    """With the unit that gives it three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def shown_ratio(row: Mapping[str, Any]) -> str:
    return f"{row['ratio']:.2f} [{row['lowest']:.2f}-{row['highest']:.2f}]"


def page(folder: Path = RESULTS) -> str:
    """docs/benchmarks.md."""
    results: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        results.setdefault(found["program"], []).append(found)
    lines = [INTRODUCTION]
    for program in load_goals().values():
        lines += [f"## {program.title}: `{program.command}`", "", *([program.about, ""] if program.about else [])]
        lines += table_lines(program, results.get(program.name, []))
        lines += [program.after, ""] if program.after else []
    return "\n".join(lines).rstrip() + "\n"


def table_lines(program: Program, results: Sequence[Mapping[str, Any]]) -> list[str]:
    """One table: every row of goals.toml, with what each of the result files has of it."""
    rows: list[list[str]] = []
    for goal in program.goals:
        found = [(result, row) for result in results for row in result["rows"] if row["what"] == goal.what]
        rows += [row_cells(goal, row, is_stale(program, result)) for result, row in found]
        if not found:
            rows.append([goal.what, "", "", "not measured", goal.text, ""])
    titles = ["", "ours", "peer", "ratio [spread]", "goal", ""]
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows)]
    for result in results:
        versions = ", ".join(f"{name} {each}" for name, each in result["versions"].items())
        lines += ["", f"Commit {result['commit'] or 'unknown'}, {result['date']}: {result['machine']}; {versions}."]
        lines += [f"Not compared there: {'; '.join(result['left_out'])}."] if result["left_out"] else []
    missed = [goal for goal in program.goals if goal.reason]
    lines += ["", *(f"- {goal.what}: {goal.reason}" for goal in missed)] if missed else []
    return [*lines, ""]


def is_stale(program: Program, result: Mapping[str, Any]) -> bool:
    """Whether the code that the result depends on has changed since."""
    return bool(result["code"] != program.code_digest())


def row_cells(goal: Goal, row: Mapping[str, Any], stale: bool) -> list[str]:
    """A measured row. A ratio has the medians of both sides, a single number stands for itself."""
    if "value" in row:
        ours, peer, value, shown = f"{row['value']:.3g}", "", row["value"], ""
    else:
        ours, peer = shown_time(row["ours_s"]), shown_time(row["peer_s"])
        value, shown = row["ratio"], f"{shown_ratio(row)}, {row['rounds']} rounds"
    remarks = [] if goal.holds(value) else ["**missed**"]
    remarks += [f"others used {row['others_cores']:.1f} cores"] if row.get("others_cores", 0) > 0.1 else []
    remarks += ["stale"] if stale else []
    return [goal.what, ours, peer, shown, goal.text, ", ".join(remarks)]


INTRODUCTION = """\
<!-- Generated by `python benchmarks/results.py` from benchmarks/goals.toml and benchmarks/results; change it there. -->

# Benchmarks

Each program times ours and the peer in turn in one process, or in turn as whole processes. A ratio is the median of
the rounds' ratios with its spread, of times where the goal is `<=` and of speeds where it is `>=`; a row without a peer
is one number. `--json` prints the same for machines, `--check` exits 1 when a goal is missed, `--out FOLDER` writes the
results that this page is made of. `make bench` runs all that fit the machine, seven rounds each, `make gpu PART=1` what
needs a GPU. Absolute times depend on the machine; quote the ratios. *Stale*: the code that the number depends on has
changed since. *Not measured*: not in this form on any machine yet.
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is not fresh")
    options = parser.parse_args(arguments)
    pages = {
        PAGE: page(),
        SCALE: scale_page({path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}),
    }
    if not options.check:
        for path, made in pages.items():
            path.write_text(made)
        return 0
    stale = [path for path, made in pages.items() if not path.is_file() or path.read_text() != made]
    for path in pages:
        print(f"{path.relative_to(ROOT)}: {'not fresh; run make docs' if path in stale else 'fresh'}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
