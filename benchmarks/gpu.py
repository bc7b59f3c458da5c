"""What only a GPU can show, in parts of at most ten minutes: equality with the CPU, rendering, scoring, pretraining.

    python benchmarks/gpu.py --part N [--out FOLDER] [--check]

`make gpu PART=N`. Every measurement is written as soon as it is there, so a part that was stopped goes on where it was;
another commit, machine or date starts it over. `--device cpu --tiny` runs the same code in miniature, for the tests.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from harness import Fact, Row, table, value_of
from results import RESULTS, load_goals, provenance, save

if TYPE_CHECKING:
    from gpu_checks import Setup

PARTS: dict[int, tuple[str, ...]] = {
    1: ("equal_views", "equal_losses", "equal_selection", "equal_scores"),
    2: ("rendering", "scoring"),
    3: ("pretraining", "compiled_steps"),
    4: ("training_steps",),
    5: ("processes", "generating"),
}
"""Functions of `gpu_checks`, one after the other."""
LEAST_LEFT_S = 60.0
"""No further check is begun in the last minute of `--minutes`."""


def run_part(
    part: int, setup: "Setup", folder: Path | None, minutes: float, say: Callable[[str], None]
) -> tuple[dict[str, Any], bool]:
    """The results of a part, written to `folder` after every check, and whether all of its checks are done."""
    import gpu_checks

    program, until = load_goals()["gpu"], time.monotonic() + 60 * minutes
    found = begun(part, folder, {**provenance(program), "rows": [], "left_out": [], "done": []})
    for name in PARTS[part]:
        if name in found["done"]:
            say(f"part {part}: {name}: there already")
            continue
        if until - time.monotonic() < LEAST_LEFT_S and found["done"]:
            say(f"part {part}: {name}: no time left; the same command goes on with it")
            return found, False
        start = time.perf_counter()
        rows: list[Row | Fact] = list(getattr(gpu_checks, name)(setup))
        for row in rows:
            program.goal(row.what)
        found["rows"] += [asdict(row) for row in rows]
        found["done"].append(name)
        if folder is not None:
            save(folder, f"gpu-{part}", found)
        say(f"part {part}: {name}: {time.perf_counter() - start:.0f} s")
        say(table(rows, program))
    return found, True


def begun(part: int, folder: Path | None, new: dict[str, Any]) -> dict[str, Any]:
    """What an earlier start of the part left, where it was of the same code on the same machine and day."""
    path = None if folder is None else folder / f"gpu-{part}.json"
    if path is None or not path.is_file():
        return new
    old: dict[str, Any] = json.loads(path.read_text())
    same = all(old.get(key) == new[key] for key in ("commit", "code", "machine", "versions", "date"))
    return old if same else new


def missed(found: Mapping[str, Any]) -> list[str]:
    """Rows whose goals are missed."""
    program = load_goals()["gpu"]
    rows = [Fact(**row) if "value" in row else Row(**row) for row in found["rows"]]
    return [row.what for row in rows if not program.goal(row.what).holds(value_of(row))]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--part", type=int, required=True, help=f"1 ... {len(PARTS)}")
    parser.add_argument("--out", type=Path, help="folder for gpu-N.json, from which docs/benchmarks.md is made")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds of a comparison (default 7)")
    parser.add_argument("--minutes", type=float, default=9.5, help="begin nothing further after these (default 9.5)")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part not in PARTS:
        parser.error(f"--part is {options.part}; the parts are 1 ... {len(PARTS)}")
    if (options.device != "cuda" and not options.tiny) or (options.tiny and (options.check or options.out == RESULTS)):
        parser.error("--device and --tiny are for trials, which measure nothing: both, with another --out, no --check")
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            f"error: gpu: part {options.part} needs a CUDA device, and torch sees none here; 'viewkit doctor' says why",
            file=sys.stderr,
        )
        return 1
    from gpu_checks import Setup  # what it imports takes long, and a refusal should not

    setup = Setup(options.device, options.tiny, 1 if options.tiny else options.rounds)
    to = sys.stderr if options.json else sys.stdout
    found, done = run_part(options.part, setup, options.out, options.minutes, lambda text: print(text, file=to))
    if options.json:
        print(json.dumps(found, indent=2))
    return 1 if options.check and (missed(found) or not done) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
