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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Fact, main, sized

from viewkit.pipelines.engine.contract import MapStage, Run, ShardFn
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.folder import identity_of
from viewkit.shards.codecs import encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.index_file import index_path
from viewkit.shards.row import Reject, Row
from viewkit.shards.writer import ShardWriter

ROWS_PER_SHARD = 1024
SIDE_PX = 8
SETTLED_S = 60.0
"""Receipts are made to look as old as this: an index of the rows is kept once they are no longer new."""
FEW, MIDDLE, MANY = 10_000, 100_000, 1_000_000
LABELS = ("10,000", "100,000", "1,000,000")


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


def run(rounds: int) -> tuple[Sequence[Fact], Sequence[str]]:
    """Each once in a process of its own. Rounds are not needed: processor time hardly varies."""
    sizes = [sized(FEW, 256), sized(MIDDLE, 1024), sized(MANY, 10_000)]
    seconds: dict[tuple[str, str], list[float]] = {(name, turn): [] for name in MEASURES for turn in ("first", "again")}
    memory: list[float] = []
    found: list[Fact] = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in sizes:
            make(Path(folder) / str(rows), rows)
            for name, turn in seconds:
                spent, megabytes = measured(name, Path(folder) / str(rows))
                seconds[name, turn].append(spent)
                if (name, turn) == ("first batch", "again"):
                    memory.append(megabytes)
            if rows == sizes[-1]:
                found += bytes_a_row(Path(folder) / str(rows) / "images", rows)
            shutil.rmtree(Path(folder) / str(rows))
    for (name, turn), spent in seconds.items():
        opening = "first opening" if turn == "first" else "later"
        found += [Fact(f"{name}, {opening}, {label} rows: s", each) for label, each in zip(LABELS, spent, strict=True)]
        a_row = (spent[-1] - spent[1]) / (sizes[-1] - sizes[1])  # below a megabyte of receipts no index is kept
        found.append(Fact(f"{name}, {opening}: us a row", a_row * 1e6))
    found.append(Fact("first batch, 1,000,000 rows: MB above 10,000", memory[-1] - memory[0]))
    return found, []


def bytes_a_row(column: Path, rows: int) -> list[Fact]:
    """What a complete column's receipts take, and the index that the first opening leaves."""
    receipts = sum(path.stat().st_size for path in column.glob("[0-9]*.json")) / rows
    return [
        Fact("receipts: bytes a row of images", receipts),
        Fact("index: bytes a row of images", index_path(column).stat().st_size / rows),
    ]


def hidden_command() -> argparse.Namespace:
    """What `measured` gives to the process that it starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", choices=MEASURES, required=True)
    parser.add_argument("--dataset", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    if "--measure" in sys.argv:
        asked = hidden_command()
        measure_here(asked.measure, asked.dataset)
    else:
        main("scale", run)
