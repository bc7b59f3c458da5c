"""Peak memory of whole commands on ten times as many rows: what a stage needs must not grow with its dataset."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from harness import Fact, Row, main, sized

from viewkit.shards.codecs import encode_png

VIEWKIT = str(Path(sys.executable).with_name("viewkit"))
FEW, MANY = 10_000, 100_000
STAGES: dict[str, tuple[str, ...]] = {
    "pack": ("--workers", "1"),
    "estimator": ("--preset", "pico-32", "--steps", "3", "--batch-size", "32", "--warmup-epochs", "0"),
    "histograms": ("--images", "32", "--negatives", "15"),
    "score": ("--rounds", "1", "--num-views", "2", "--workers", "1"),
    "draw": ("--column", "drawn", "--candidates", "original", "--rounds", "1", "--workers", "1"),
}


def peak_mb(*command: str) -> float:
    """Most memory that a command held; it must succeed."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment) as process:
        said = process.stderr.read() if process.stderr is not None else b""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: {said.decode(errors='replace')[-2000:]}")
    return used.ru_maxrss / 1024


def small_images(folder: Path, count: int) -> None:
    """Files of 32 px, a thousand to a folder."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"{number // 1000:03d}" / f"{number:06d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)))


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    """Each once: memory hardly varies."""
    peaks: dict[str, list[float]] = {name: [] for name in STAGES}
    with tempfile.TemporaryDirectory() as name:
        for count in (sized(FEW, 40), sized(MANY, 60)):
            images, dataset = Path(name) / f"images{count}", Path(name) / f"dataset{count}"
            small_images(images, count)
            for stage, options in STAGES.items():
                places = (str(images), str(dataset)) if stage == "pack" else (str(dataset),)
                peaks[stage].append(peak_mb(VIEWKIT, stage, *places, "--device", "cpu", *options))
    rows: list[Row | Fact] = []
    for stage, (few, many) in peaks.items():
        rows.append(Fact(f"peak memory of {stage}, 100,000 rows over 10,000", many / few))
        rows.append(Fact(f"peak memory of {stage}, 100,000 rows, MB", many))
    return rows, []


if __name__ == "__main__":
    main("memory", run)
