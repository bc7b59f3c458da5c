"""Scoring candidate pairs against the bare forward pass of the estimator, and that against a matrix product.

Ours is what `viewkit score` does with a shard's rows: decode, sample, render, embed, compare, read off both indicators,
encode. The peer only embeds ready batches. Untrained weights: speed does not depend on them.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from harness import Fact, Row, compare, main

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from vs2fi_world import make_estimator, write_column

from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.renderer import VARIABLE, find_library
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.estimator.config import PRESETS, PresetName
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.estimator import Estimator, EstimatorNetwork, Precision
from viewkit.pipelines.pairs.samples import load_image
from viewkit.pipelines.score.config import RescoreConfig, ScoreConfig
from viewkit.pipelines.score.rescore import RescoreStage
from viewkit.pipelines.score.scorer import RowImages, Scorer
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import NUM_FIELDS
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.embeddings import ROWS_PER_BATCH
from viewkit.pipelines.vs2fi.scores import rescore
from viewkit.shards import row as shard_row
from viewkit.shards.codecs import encode_jpeg, encode_npy
from viewkit.shards.dataset import Dataset

ROUNDS = 2
"""Of candidate views in every comparison."""
STORED_ROUNDS, EPOCHS = ScoreConfig().rounds, 100
"""What `score` stores by default, and the epochs of the paper's ablations."""
PAIRS = 200_000
MATRIX = 2048


@dataclass(frozen=True)
class Case:
    """A preset of `viewkit estimator`, the views of one forward pass, and the images of a dataset to score."""

    preset: PresetName
    views: int
    image_px: int = 0
    images: int = 0


CPU_CASES = (Case("pico-32", 160, 64, 256), Case("tiny-64", 64, 64, 32), Case("vit-s16-224", 16))


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    torch.set_num_threads(1)  # as a worker of the stage does
    found: list[Row | Fact] = []
    left_out = []
    precisions: list[Precision] = ["fp32", "bf16"]
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        precisions.remove("bf16")
        left_out.append("bf16: this processor has no instructions for it")
    for case in CPU_CASES:
        if case.images:
            with tempfile.TemporaryDirectory() as folder:
                found += compare_scoring(Path(folder), case, "cpu", rounds)
        for precision in precisions:
            found += compare_forward(case, precision, "cpu", rounds)
    found.append(Fact("rescoring, s per million pairs", rescoring_s()))
    return found, left_out


def compare_forward(
    case: Case, precision: Precision, device: str, rounds: int, name: str | None = None
) -> list[Row | Fact]:
    """The forward pass with all exits against the one without, and the latter against a matrix product."""
    estimator = preset_estimator(case.preset, precision, device)
    batch = torch.randn(case.views, 3, estimator.side_px, estimator.side_px, device=device)
    matrix = torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    name = name or f"{case.preset} {precision} {device}"

    def with_exits() -> None:
        estimator.embed(batch)
        synchronise(device)

    def without() -> None:
        bare_forward(estimator, batch)
        synchronise(device)

    def product() -> None:
        torch.mm(matrix, matrix)
        synchronise(device)

    plain, exits = operations(estimator.network)
    speed = compare("", without, product, rounds)
    ours, peer = plain * case.views, 2.0 * MATRIX**3
    scale = ours / peer
    return [
        replace(
            speed,
            what=f"bare forward / matrix product, operations a second, {name} (1e9)",
            ours_s=speed.ours_s / ours * 1e9,
            peer_s=speed.peer_s / peer * 1e9,
            ratio=speed.ratio * scale,
            lowest=speed.lowest * scale,
            highest=speed.highest * scale,
        ),
        compare(f"all exits / none, {name} (views)", with_exits, without, rounds, units=case.views, at_most=True),
        Fact(f"operations that the exits add, counted, a share, {name}", exits / plain),
    ]


@torch.inference_mode()
def bare_forward(estimator: Estimator, views: torch.Tensor) -> None:
    """Backbone and projector, on as many views at once and in the same precision as `Estimator.embed`."""
    network = estimator.network
    for part in views.split(estimator.views_at_once(len(views))):
        with torch.autocast(estimator.device.type, dtype=torch.bfloat16, enabled=estimator.precision == "bf16"):
            top = network.projector(network.backbone(part))
        F.normalize(top.float(), dim=-1)


def operations(network: EstimatorNetwork) -> tuple[float, float]:
    """Multiplications and additions of a view's matrix products: of a ViT with its projector, and of its exits."""
    trunk = network.backbone.trunk
    d, blocks, patches = trunk.embed_dim, len(trunk.blocks), trunk.patch_embed.num_patches
    t = patches + trunk.num_prefix_tokens
    patch = trunk.patch_embed.proj.weight.numel() * patches
    block = 12 * t * d * d + 2 * t * t * d  # qkv, projection and an MLP four times as wide; Q K^T and its use
    heads = [sum(weight.numel() for weight in part.parameters() if weight.ndim == 2) for part in network.projector]
    exits = sum(weight.numel() for weight in network.exits.parameters() if weight.ndim == 2)
    return 2.0 * (patch + blocks * block + sum(heads)), 2.0 * exits


def preset_estimator(preset: PresetName, precision: Precision, device: str) -> Estimator:
    s = PRESETS[preset]
    network = EstimatorNetwork(s.arch, s.side_px, init="moco_v3", hidden=s.hidden, dim=s.dim)
    facts = {"side_px": s.side_px, "mean": [0.5] * 3, "std": [0.5] * 3, "tau": s.tau}
    return Estimator(network, facts, device, precision)


def compare_scoring(folder: Path, case: Case, device: str, rounds: int, name: str | None = None) -> list[Row | Fact]:
    """The stage's whole work on a dataset; memory first, because a process's peak never falls."""
    s = PRESETS[case.preset]
    dataset = jpeg_dataset(folder / "dataset", case.image_px, case.images)
    make_estimator(dataset, arch=s.arch, side_px=s.side_px)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=15, images=16), dataset, Execution(device=device))
    torch.set_num_threads(1)
    stage, config = ScoreStage(), ScoreConfig(rounds=ROUNDS)
    score = stage.prepare(config, Run(dataset, dataset.path / "pairs", stage.name, device=device))
    name = name or f"{case.preset} {device}"

    def ours(count: int = case.images) -> None:
        for _ in score(islice(all_rows(dataset), count)):
            pass

    ours(case.images // 4)
    quarter = peak_mb()
    ours()
    whole = peak_mb()
    estimator = Estimator.load(dataset.artifact("estimator"), device)
    side_px = estimator.side_px
    batch = torch.randn(ROWS_PER_BATCH * config.num_views, 3, side_px, side_px, device=device)
    num_batches = ROUNDS * -(-case.images // ROWS_PER_BATCH)
    histograms = Histograms.load(dataset.artifact("histograms"))
    scorer = Scorer(estimator, histograms, load_policy(config.policy).with_side(side_px), config, stage.name)
    decoded = [RowImages(row.key, load_image(row.fields, device)) for row in islice(all_rows(dataset), ROWS_PER_BATCH)]

    def forward() -> None:
        for _ in range(num_batches):
            bare_forward(estimator, batch)
        synchronise(device)

    def online() -> None:
        """What the paper's trainer does beside its own decoding: draw, render, embed and rate every epoch."""
        for turn in range(num_batches):
            _, similarities = scorer.score_round(decoded, turn % ROUNDS)
            rescore(similarities, histograms, config.gamma)

    views = num_batches * ROWS_PER_BATCH * config.num_views
    rendering = compare_rendering(scorer, decoded, name, rounds) if device == "cpu" else []
    scoring = compare(f"scoring / bare forward, {name} (views)", ours, forward, rounds, units=views)
    beside = compare(f"scoring / online selection, {name} (views)", ours, online, rounds, units=views)
    stored = f"{STORED_ROUNDS} rounds once / {EPOCHS} epochs online"
    return [
        Fact(f"peak memory of scoring, {name}, MB", whole),
        Fact(f"peak memory, all rows over a quarter of them, {name}, MB", whole - quarter),
        *rendering,
        scoring,
        beside,
        Fact(f"{stored}, {name}, time", STORED_ROUNDS / EPOCHS / beside.ratio),
        Fact(f"stage `rescore`, {name}, s per million pairs", stage_s(dataset, estimator.num_exits)),
    ]


def compare_rendering(scorer: Scorer, decoded: Sequence[RowImages], name: str, rounds: int) -> list[Row | Fact]:
    """The views of one batch of `score` by the compiled renderer and by torch's operations, and what they change."""
    if isinstance(find_library(), str):
        return []
    recipes, _ = scorer.score_round(decoded, 0)
    index = np.repeat(np.arange(len(decoded)), recipes.shape[1])
    before = os.environ.get(VARIABLE)

    def views(renderer: str) -> None:
        os.environ[VARIABLE] = renderer
        images, flat = [row.original for row in decoded], recipes.reshape(-1, NUM_FIELDS)
        render(images, flat, index, side_px=scorer.estimator.side_px, interpolation=scorer.policy.interpolation)

    def similarities(renderer: str) -> np.ndarray:
        os.environ[VARIABLE] = renderer
        return scorer.score_round(decoded, 0)[1]

    def whole(renderer: str) -> Callable[[], object]:
        return lambda: similarities(renderer)

    off = float(np.abs(similarities("compiled") - similarities("torch")).max())
    found: list[Row | Fact] = [
        compare(
            f"rendering, compiled / torch ops, {name} (views)",
            lambda: views("compiled"),
            lambda: views("torch"),
            rounds,
            units=len(index),
        ),
        compare(
            f"a round of scoring, compiled / torch ops, {name} (views)",
            whole("compiled"),
            whole("torch"),
            rounds,
            units=len(index),
        ),
        Fact(f"similarities, compiled and torch ops, {name}: largest difference", off),
    ]
    if before is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = before
    return found


def all_rows(dataset: Dataset) -> Iterator[shard_row.Row]:
    images = dataset.column("images")
    for shard in range(images.num_shards):
        yield from images.rows(shard)


def peak_mb() -> float:
    """Most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rescoring_s() -> float:
    """Seconds for a million pairs with 12 exits, from stored similarities."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 9, (14, 2**14))
    histograms = Histograms(
        positive_cells=cells[0], negative_cells=cells[1], soft_mean_cells=cells[2:], bins=20, negatives=1023,
        tau=0.2, prior_positive=0.5, estimator="", policy="", num_views=2, num_images=1,
    )  # fmt: skip
    similarities = rng.uniform(-0.3, 1, (PAIRS, 13)).astype(np.float32)
    return timed(lambda: rescore(similarities, histograms, 1 / 64)) * 1e6 / PAIRS


def stage_s(dataset: Dataset, num_exits: int) -> float:
    """Seconds for a million pairs through the stage `rescore`, decoding and encoding of the arrays included."""
    run_stage(ScoreStage(), ScoreConfig(rounds=1), dataset, Execution(device="cpu", workers=1))
    scores = np.random.default_rng(0).uniform(-0.3, 1, (64, 10, 3 + num_exits)).astype(np.float32)
    fields = {"recipes.npy": encode_npy(np.zeros((64, 5, NUM_FIELDS), np.float32)), "scores.npy": encode_npy(scores)}
    rows = [shard_row.Row(f"row{number}", fields) for number in range(PAIRS // 640)]
    again = RescoreStage().prepare(RescoreConfig(), Run(dataset, dataset.path / "elsewhere", "rescore"))
    return timed(lambda: sum(1 for _ in again(iter(rows)))) * 1e6 / (640 * len(rows))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


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
    main("score", run)
