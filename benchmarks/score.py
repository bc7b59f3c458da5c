"""Scoring candidate pairs against the bare forward pass of the estimator on batches of the same size.

Ours is what `viewkit score` does with a shard's rows: decode, sample, render, embed, compare, read off both indicators,
encode. The peer only embeds ready batches. Untrained weights: speed does not depend on them.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from harness import Fact, Row, compare, main

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from vs2fi_world import make_estimator, write_column

from viewkit.pipelines.execution import Execution
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.runner import run_stage
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.stage import Run
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.candidates import ROWS_PER_BATCH
from viewkit.pipelines.vs2fi.scores import rescore
from viewkit.shards import row as shard_row
from viewkit.shards.codecs import encode_jpeg
from viewkit.shards.dataset import Dataset

ROUNDS = 2
PAIRS = 200_000


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    torch.set_num_threads(1)  # as a worker of the stage does
    cases = [("vit_small_patch16_224", 224, 500, 1024)] if on_gpu else [("vit_pico_patch8", 64, 64, 32)]
    found: list[Row | Fact] = []
    for arch, side_px, image_px, count in cases:
        with tempfile.TemporaryDirectory() as folder:
            dataset = jpeg_dataset(Path(folder) / "dataset", image_px, count)
            make_estimator(dataset, arch=arch, side_px=side_px)
            run_stage(HistogramsStage(), HistogramsConfig(negatives=15, images=16), dataset, Execution(device=device))
            torch.set_num_threads(1)
            found += compare_scoring(dataset, f"{arch} at {side_px} px on {device}", device, rounds)
    return found, [] if on_gpu else ["ViT-S/16 at 224 px: it needs a GPU to be measured in reasonable time"]


def compare_scoring(dataset: Dataset, name: str, device: str, rounds: int) -> list[Row | Fact]:
    stage, config = ScoreStage(), ScoreConfig(rounds=ROUNDS)
    score = stage.prepare(config, Run(dataset, dataset.path / "pairs", stage.name, device=device))
    rows = [row for shard in range(dataset.column("images").num_shards) for row in dataset.column("images").rows(shard)]
    estimator = Estimator.load(dataset.artifact("estimator"), device)
    batch = torch.randn(ROWS_PER_BATCH * config.num_views, 3, estimator.side_px, estimator.side_px, device=device)
    num_batches = ROUNDS * -(-len(rows) // ROWS_PER_BATCH)
    network = estimator.network

    def ours() -> None:
        for _ in score(iter(rows)):
            pass

    def forward() -> None:
        for _ in range(num_batches):
            estimator.embed(batch)
        synchronise(device)

    @torch.inference_mode()
    def without_exits() -> None:
        for _ in range(num_batches):
            network.projector(network.backbone(batch))
        synchronise(device)

    views = len(rows) * config.num_views * ROUNDS
    return [
        compare(f"score / forward, {name} (views)", ours, forward, 0.9, rounds, units=views),
        compare(f"all exits / none, {name}", forward, without_exits, 1.05, rounds, units=views, at_most=True),
        Fact("rescoring, s per million pairs", rescoring_s(Histograms.load(dataset.artifact("histograms"))), 5),
    ]


def rescoring_s(histograms: Histograms) -> float:
    """Seconds for a million pairs with 12 exits, from stored similarities."""
    twelve = np.resize(histograms.soft_mean_cells, (12, histograms.soft_mean_cells.shape[1]))
    histograms = replace(histograms, soft_mean_cells=twelve)
    similarities = np.random.default_rng(0).uniform(-0.3, 1, (PAIRS, 13)).astype(np.float32)
    start = time.perf_counter()
    rescore(similarities, histograms, 1 / 64)
    return (time.perf_counter() - start) * 1e6 / PAIRS


def jpeg_dataset(path: Path, image_px: int, count: int) -> Dataset:
    path.mkdir()
    dataset = Dataset(path)
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (count, image_px // 4, image_px // 4, 3), dtype=np.uint8)
    jpegs = [encode_jpeg(pixels.repeat(4, axis=0).repeat(4, axis=1), quality=90) for pixels in coarse]
    rows = [shard_row.Row(f"row{number:05d}", {"jpg": jpeg}) for number, jpeg in enumerate(jpegs)]
    write_column(dataset, "images", rows, 1024)
    return dataset


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main((__doc__ or "").partition("\n")[0], run)
