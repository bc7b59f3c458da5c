"""What somebody waits for who tries or changes viewkit: the demo after installation, and the usual tests."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness import Fact, Row, main, sized

ROOT = Path(__file__).resolve().parents[1]
VIEWKIT = str(Path(sys.executable).with_name("viewkit"))
TESTS = ("-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", "not slow and not gpu")


def seconds_of(*command: str) -> float:
    """Of a whole process; it must succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, env={"OMP_NUM_THREADS": "1", **os.environ})
    return time.perf_counter() - start


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    """Each once, as the Makefile has it; with --smoke the demo's plan, and tests that are only collected."""
    with tempfile.TemporaryDirectory() as folder:
        small = sized(0, 1)
        demo = (VIEWKIT, "run", "demo", "demo:train", f"{folder}/train", "--test", "demo:test")
        rows = [
            Fact("make demo after installation, s", seconds_of(*demo, *(("--dry-run",) if small else ()))),
            Fact("usual tests, s", seconds_of(sys.executable, *TESTS, *(("--collect-only",) if small else ()))),
        ]
    return rows, []


if __name__ == "__main__":
    main("house", run)
