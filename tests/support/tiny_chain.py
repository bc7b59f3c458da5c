"""A dataset of a few small images with every artifact the column-writing stages need; seconds to make."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from small_datasets import CPU, contents

from viewkit.pipelines.draw.config import DrawConfig
from viewkit.pipelines.draw.stage import DrawStage
from viewkit.pipelines.engine.contract import FitStage, MapStage
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.stage import EstimatorStage
from viewkit.pipelines.foreground.stage import ForegroundStage, ViewsForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.pipelines.quality.stage import QualityStage
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.shards.dataset import Dataset

IMAGES = 24
SIDE_PX = 40


def photographs(folder: Path) -> Path:
    """Smooth coloured blobs on a gradient, labelled by folder; two files are broken."""
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[0:SIDE_PX, 0:SIDE_PX] / SIDE_PX
    for place in range(IMAGES):
        centre, colour = generator.uniform(0.3, 0.7, 2), generator.uniform(60, 255, 3)
        blob = np.exp(-((rows - centre[0]) ** 2 + (columns - centre[1]) ** 2) / 0.02)[..., None]
        ground = 80 * (rows + columns)[..., None] * generator.uniform(0.2, 1, 3)
        noise = generator.normal(0, 6, (SIDE_PX, SIDE_PX, 3))
        pixels = np.clip(ground * (1 - blob) + colour * blob + noise, 0, 255).astype(np.uint8)
        path = folder / f"class{place % 3}" / f"image{place:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    (folder / "class0" / "empty.png").touch()
    (folder / "class1" / "text.jpg").write_text("not an image")
    return folder


@dataclass(frozen=True)
class Job:
    """A stage with its config, as a test runs it."""

    stage: MapStage[Any] | FitStage[Any]
    config: Any


def jobs(source: Path) -> dict[str, Job]:
    """Every stage of the chain up to `quality`, in order, by the folder it writes."""
    estimator = EstimatorConfig(preset="pico-32", epochs=1, warmup_epochs=0, batch_size=8, hidden=32, dim=16)
    generate, quality = GenerateConfig(sample=20), QualityConfig(sign="+", sample=20)
    steps = [
        Job(PackStage(str(source)), PackConfig(labels="folders", rows_per_shard=7)),
        Job(
            EstimatorStage(),
            estimator,
        ),
        Job(ForegroundStage(), generate.foreground()),
        Job(GenerateStage(), generate),
        Job(HistogramsStage(), HistogramsConfig(images=IMAGES, negatives=7)),
        Job(ScoreStage(), ScoreConfig(rounds=2)),
        Job(DrawStage("pairs_drawn"), DrawConfig(rounds=2)),
        Job(ViewsForegroundStage(), quality.foreground()),
        Job(QualityStage(), quality),
    ]
    return {job.stage.writes: job for job in steps}


def make(source: Path, dataset: Dataset) -> None:
    """Run the whole chain, undisturbed, on one worker."""
    for job in jobs(source).values():
        run_stage(job.stage, job.config, dataset, CPU)


@dataclass(frozen=True)
class Chain:
    """source: the photographs. dataset: what the whole chain made of them."""

    source: Path
    dataset: Dataset

    @classmethod
    def at(cls, folder: Path) -> "Chain":
        """The chain in a folder; made there unless it is."""
        found = cls(folder / "photographs", Dataset(folder / "data"))
        if not (folder / "made").is_file():
            make(photographs(found.source), found.dataset)
            (folder / "made").touch()
        return found


def run_and_kill(source: Path, path: Path, column: str, kills: int, longest_s: float) -> None:
    """Start the stage that writes `column` again and again, kill it at random moments, then let it finish.

    Each start is a fork of this process, in which everything slow is imported already.
    """
    job, generator = jobs(source)[column], np.random.default_rng(len(column))
    done = 0
    while done < kills:
        child = os.fork()
        if child == 0:
            run_stage(job.stage, job.config, Dataset(path), CPU)
            os._exit(0)
        time.sleep(generator.uniform(0, longest_s))
        os.kill(child, signal.SIGKILL)
        done += os.waitpid(child, 0)[1] == signal.SIGKILL
        for receipt in (path / column).glob("0*.json"):
            if generator.random() < 0.4:  # so that there is always something left to be killed at
                receipt.unlink()
    run_stage(job.stage, job.config, Dataset(path), CPU)


def main(arguments: list[str]) -> None:
    """In a process of its own, since it forks: SOURCE DATASET COLUMN KILLS LONGEST_S."""
    source, path, column, kills, longest_s = arguments
    run_and_kill(Path(source), Path(path), column, int(kills), float(longest_s))


__all__ = ["CPU", "Chain", "Execution", "Job", "contents", "jobs", "make", "photographs", "run_and_kill"]

if __name__ == "__main__":
    main(sys.argv[1:])
