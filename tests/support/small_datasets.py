"""Small datasets and comparisons that many tests share."""

from pathlib import Path

import numpy as np
from toy_stages import NumbersConfig, NumbersStage
from vs2fi_world import write_column

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.codecs import encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import make_folder
from viewkit.shards.row import Row

COLOURS = ((220, 40, 40), (40, 220, 40), (40, 40, 220))
CPU = Execution(device="cpu", workers=1, max_rejects=1.0)


def numbers_dataset(path: Path, rows: int = 30, rows_per_shard: int = 8) -> Dataset:
    dataset = Dataset(path)
    run_stage(NumbersStage(), NumbersConfig(rows=rows, rows_per_shard=rows_per_shard), dataset, CPU)
    return dataset


def coloured(path, per_class, seed, classes=(0, 1, 2), labels=True, shift=0):
    """Noisy images of one colour a class: pixels alone tell them apart. shift: added to the labels, modulo 3."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(per_class):
        for label in classes:
            height, width = rng.integers(34, 50, 2)
            pixels = np.array(COLOURS[label]) + rng.integers(-25, 26, (height, width, 3))
            fields = {"png": encode_png(pixels.clip(0, 255).astype(np.uint8))}
            if labels:
                fields["cls"] = str((label + shift) % 3).encode()
            rows.append(Row(f"c{label}-{number}", fields))
    make_folder(path)
    dataset = Dataset(path)
    write_column(dataset, "images", rows, shard_rows=16)
    return dataset


def contents(folder: Path) -> dict[str, bytes]:
    """Relative path -> bytes of every file below `folder`, locks left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".locks" not in path.parts
    }
