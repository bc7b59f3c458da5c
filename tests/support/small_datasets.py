"""Small datasets and comparisons that many tests share."""

from pathlib import Path

from toy_stages import NumbersConfig, NumbersStage

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.dataset import Dataset

CPU = Execution(device="cpu", workers=1, max_rejects=1.0)


def numbers_dataset(path: Path, rows: int = 30, rows_per_shard: int = 8) -> Dataset:
    dataset = Dataset(path)
    run_stage(NumbersStage(), NumbersConfig(rows=rows, rows_per_shard=rows_per_shard), dataset, CPU)
    return dataset


def contents(folder: Path) -> dict[str, bytes]:
    """Relative path -> bytes of every file below `folder`, locks left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".locks" not in path.parts
    }
