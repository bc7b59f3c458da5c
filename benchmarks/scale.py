"""What a dataset costs to open, by its number of rows: first training batch, `status`, a stage with nothing to do.

Rows are PNGs of 8 px in shards of 1,024. Every number is of a process of its own: seconds of its work after the
imports, and memory above theirs. "first" is the first opening ever, "again" every later one.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from viewkit.pipelines.engine.contract import MapStage, Run, ShardFn
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.folder import identity_of
from viewkit.shards.codecs import encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Reject, Row
from viewkit.shards.writer import ShardWriter

ROWS_PER_SHARD = 1024
SIDE_PX = 8
SETTLED_S = 60.0
"""Receipts are made to look as old as this: an index of the rows is kept once they are no longer new."""
GOALS = {"first batch": 2.0, "status": 2.0, "nothing to do": 3.0}
"""Seconds of the second opening, at a million rows."""
MEMORY_MB = 200.0
"""What the first batch of the largest dataset may take above that of the smallest."""


@dataclass(frozen=True, kw_only=True)
class NotesConfig:
    """No options."""


class NotesStage(MapStage[NotesConfig]):
    """A stage that reads `images` and writes a few bytes a row, all of which `make` has written."""

    name = "notes"
    writes = "notes"
    uses_torch = False

    def reads(self, config: NotesConfig) -> tuple[str, ...]:
        return ("images",)

    def prepare(self, config: NotesConfig, run: Run) -> ShardFn:
        def transform(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            for row in rows:
                yield Row(row.key, {"json": b"{}"})

        return transform


def make(path: Path, rows: int) -> None:
    """`images`, and `notes` as `NotesStage` would have written it."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, SIDE_PX, SIDE_PX, 3), dtype=np.uint8)
    images = [encode_png(each) for each in pixels]
    plan = {"shards": -(-rows // ROWS_PER_SHARD), "rows": rows}
    identity = Identity("pack", 1, {}, {"listing": "none"}, plan)
    write_column(path / "images", identity, rows, lambda i: {"png": images[i % len(images)], "cls": b"%d" % (i % 10)})
    dataset = Dataset(path)
    stage, config = NotesStage(), NotesConfig()
    identity = identity_of(stage, config, stage.inputs(config, dataset), plan)
    write_column(path / "notes", identity, rows, lambda _: {"json": b"{}"})
    shutil.rmtree(path / ".index", ignore_errors=True)  # the digest of `images` took one


def write_column(folder: Path, identity: Identity, rows: int, fields: Callable[[int], dict[str, bytes]]) -> None:
    folder.mkdir(parents=True)
    write_identity(folder / "column.json", identity)
    for shard in range(identity.plan["shards"]):
        with ShardWriter(folder, shard, identity.digest) as writer:
            for i in range(shard * ROWS_PER_SHARD, min((shard + 1) * ROWS_PER_SHARD, rows)):
                writer.write(Row(f"photographs_of_things_{i:09d}_{i * 2654435761 % 2**48:012x}", fields(i)))
            writer.finish()
        old = time.time() - SETTLED_S
        os.utime(folder / f"{shard:06d}.json", (old, old))


def first_batch(path: Path) -> None:
    from viewkit.pipelines.pairs.load import load_pairs

    pairs = load_pairs(Dataset(path), policy="simclr", side_px=SIDE_PX, batch_size=64, select="random")
    next(iter(pairs.epoch(0)))


def status(path: Path) -> None:
    from viewkit.cli.status import facts_of, lines_of

    lines_of(facts_of(Dataset(path)), rejects=False)


def nothing_to_do(path: Path) -> None:
    from viewkit.pipelines.engine.run import run_stage

    done = run_stage(NotesStage(), NotesConfig(), Dataset(path), Execution(device="cpu", workers=1))
    assert done.written == 0


MEASURES: dict[str, Callable[[Path], None]] = {
    "first batch": first_batch,
    "status": status,
    "nothing to do": nothing_to_do,
}


def measured(name: str, path: Path) -> tuple[float, float]:
    """(seconds, MB above the imports) of one measure in a process of its own."""
    command = [sys.executable, __file__, "--measure", name, "--dataset", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["megabytes"]


def measure_here(name: str, path: Path) -> None:
    """What a process started by `measured` does; the work is done once on a tiny dataset before, so imports and the
    first use of libraries do not count."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "tiny", 128)
        MEASURES[name](Path(folder) / "tiny")
    before, begin = _peak_mb(), time.process_time()
    MEASURES[name](path)
    print(json.dumps({"seconds": time.process_time() - begin, "megabytes": max(0.0, _peak_mb() - before)}))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000], help="sizes, e.g. 10000 1000000")
    parser.add_argument("--check", action="store_true", help="exit 1 where a goal is missed, in proportion to the rows")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--dataset", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure_here(options.measure, options.dataset)
        return
    if len(options.rows) < 2 or sorted(set(options.rows)) != options.rows or options.rows[0] < 64:
        parser.error(f"--rows is {options.rows}; two or more rising numbers from 64 on are needed")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            begin = time.monotonic()
            make(Path(folder) / str(rows), rows)
            print(f"{rows} rows made in {time.monotonic() - begin:.0f} s", file=sys.stderr)
            for name in MEASURES:
                for turn in ("first", "again"):
                    seconds, megabytes = measured(name, Path(folder) / str(rows))
                    found.append({"measure": name, "turn": turn, "rows": rows, "s": seconds, "MB": megabytes})
    print(json.dumps(found, indent=1) if options.json else table(found))
    if options.check and (missed := misses(found)):
        sys.exit("\n".join(missed))


def table(found: list[dict]) -> str:
    """A line a measure and turn: seconds and memory by rows, and what a row more costs."""
    sizes = sorted({each["rows"] for each in found})
    lines = [" " * 22 + "".join(f"{size:>22,}" for size in sizes) + f"{'a row more':>16}"]
    for name in MEASURES:
        for turn in ("first", "again"):
            mine = {each["rows"]: each for each in found if (each["measure"], each["turn"]) == (name, turn)}
            cells = "".join(f"{mine[size]['s']:>12.2f} s{mine[size]['MB']:>5.0f} MB" for size in sizes)
            slope = (mine[sizes[-1]]["s"] - mine[sizes[0]]["s"]) / (sizes[-1] - sizes[0])
            lines.append(f"{name + ', ' + turn:<22}{cells}{slope * 1e6:>13.2f} us")
    return "\n".join(lines)


def misses(found: list[dict]) -> list[str]:
    """Goals that the largest dataset misses at its second opening."""
    largest, smallest = max(each["rows"] for each in found), min(each["rows"] for each in found)
    again = {(each["measure"], each["rows"]): each for each in found if each["turn"] == "again"}
    missed = [
        f"{name} took {again[name, largest]['s']:.2f} s at {largest} rows; {goal:g} s are the goal up to a million"
        for name, goal in GOALS.items()
        if again[name, largest]["s"] > goal * max(1.0, largest / 1e6)
    ]
    more = again["first batch", largest]["MB"] - again["first batch", smallest]["MB"]
    if more > MEMORY_MB * max(1.0, largest / 1e6):
        missed.append(f"first batch took {more:.0f} MB more at {largest} rows; {MEMORY_MB:g} MB are the goal")
    return missed


if __name__ == "__main__":
    main()
