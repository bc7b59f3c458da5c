"""A training step with everything viewkit adds against the plain one, against lightly's modules, and bf16 against fp32.

Both sides of a row read, render and train on batches of the same size from the same packed images, step by step in
turn. Weights are whatever they have become: the time of a step does not depend on them.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import torch
from harness import Fact, Row, compare, main, sized
from torch import Tensor, nn

from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.execution import Devices, Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.stage import EstimatorStage
from viewkit.pipelines.foreground.stage import ViewsForegroundStage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.stage import prepare
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.pipelines.quality.stage import QualityStage
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.training.loop import train_step
from viewkit.pipelines.training.step import Stepper
from viewkit.shards.dataset import Dataset

HARD = ("simsiam", "simclr", "moco_v2")
BATCH, ARCH, SIDE_PX, SMALL_PX = 64, "resnet18_cifar", 32, 12


def dataset_at(folder: Path, *, small: bool = False) -> Dataset:
    """The packed demo images with scored pairs and their quality; an estimator of a few steps is as fast as any."""
    dataset, devices, execution = Dataset(folder), Devices(device="cpu"), Execution(device="cpu")
    run_stage(PackStage("demo:test" if small else "demo:train"), PackConfig(), dataset, execution)
    estimator = EstimatorConfig(preset="pico-32", steps=3, warmup_epochs=0.0)
    run_stage(EstimatorStage(), estimator, dataset, devices)
    run_stage(HistogramsStage(), HistogramsConfig(images=64 if small else 512, negatives=63), dataset, devices)
    run_stage(ScoreStage(), ScoreConfig(rounds=1), dataset, execution)
    quality = QualityConfig(sign="+", sample=64) if small else QualityConfig(sign="+")
    run_stage(ViewsForegroundStage(), quality.foreground(), dataset, devices)
    run_stage(QualityStage(), quality, dataset, execution)
    return dataset


def network_of() -> dict[str, Any]:
    """Options of every training, unless it has others; a small network with --smoke."""
    arch = ARCH if sized(1, 0) else "resnet10_narrow"
    return {"arch": arch, "side_px": SIDE_PX, "batch_size": sized(BATCH, 32), "steps": 10_000}


def stepper_of(dataset: Dataset, device: str, **options: Any) -> Callable[[], Tensor]:
    """A function that takes one more step of a training: rows, views, selection, loss, update."""
    config = PretrainConfig(**{**network_of(), **options})
    run = Run(dataset, dataset.path / "none", "pretrain", device=device)
    training = prepare(resolve(config), run)
    training.framework.train()
    stepper = Stepper.make(device, config.precision)
    batches = (batch for epoch in count() for batch in training.source.epoch(epoch))

    def step() -> Tensor:
        batch = next(batches)
        chosen = batch if training.selector is None else training.selector(training.framework, batch, stepper)
        loss = train_step(training.framework, training.optimiser, chosen, training.schedule, stepper)
        if device != "cpu":
            torch.cuda.synchronize()
        return loss

    return step


def bare_step(dataset: Dataset, device: str, **options: Any) -> Callable[[], Tensor]:
    """The network's part of such a step alone: loss and gradients on views that are there already."""
    config = PretrainConfig(**{**network_of(), **options})
    training = prepare(resolve(config), Run(dataset, dataset.path / "none", "pretrain", device=device))
    framework, stepper = training.framework.train(), Stepper.make(device, config.precision)
    batch = next(training.source.epoch(0))

    def step() -> Tensor:
        with stepper.autocast():
            loss = framework.loss(batch.views)
        framework.zero_grad(set_to_none=True)
        loss.backward()
        if device != "cpu":
            torch.cuda.synchronize()
        return loss.detach()

    return step


def lightly_step(dataset: Dataset, device: str, method: str, **options: Any) -> Callable[[], Tensor]:
    """The same step with lightly's heads and losses, on the same backbone and the same batches."""
    from lightly.loss import NegativeCosineSimilarity, NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead, SimSiamPredictionHead, SimSiamProjectionHead

    config = PretrainConfig(**{**network_of(), "framework": method, **options})
    source = prepare(resolve(config), Run(dataset, dataset.path / "none", "pretrain", device=device)).source
    backbone = create_backbone(config.arch, SIDE_PX).to(device)
    width = backbone.num_features
    parts: list[nn.Module]
    if method == "simsiam":
        parts = [SimSiamProjectionHead(width, 2048, 2048), SimSiamPredictionHead(2048, 512, 2048)]
        criterion: nn.Module = NegativeCosineSimilarity()
    else:
        parts = [SimCLRProjectionHead(width, 2048, 128)]
        criterion = NTXentLoss(temperature=0.1)
    network = nn.ModuleList([backbone, *parts]).to(device).train()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    batches = (batch for epoch in count() for batch in source.epoch(epoch))

    def step() -> Tensor:
        views1, views2 = next(batches).views
        z1, z2 = parts[0](backbone(views1)), parts[0](backbone(views2))
        if method == "simsiam":
            p1, p2 = parts[1](z1), parts[1](z2)
            loss = (criterion(p1, z2.detach()) + criterion(p2, z1.detach())) / 2
        else:
            loss = criterion(z1, z2)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if device != "cpu":
            torch.cuda.synchronize()
        return loss.detach()

    return step


def rows_of(dataset: Dataset, device: str, rounds: int, **options: Any) -> Iterator[Row]:
    """All comparisons. options: of all of their trainings."""

    def row(what: str, ours: dict[str, Any], peer: dict[str, Any]) -> Row:
        pair = stepper_of(dataset, device, **{**options, **ours}), stepper_of(dataset, device, **{**options, **peer})
        return compare(what, *pair, rounds, at_most=True, least_s=0.0)

    base = {"framework": "moco_v2", "policy": "strengthened"}  # that of the stored pairs
    yield row("VS-2FI pairs / random pairs", {**base, "select": "vs2fi", "k_sc": 0.5}, base)
    stored = {**base, "select": "stored"}
    yield row("quality weights / none", {**stored, "weights": "quality"}, stored)
    yield row("joint crops / independent", {**base, "joint_area": 0.0}, base)
    half = {**base, "batch_size": {**network_of(), **options}["batch_size"] // 2, "views_per_side": 2}
    yield row("DSF, B/2 x 4 views / B x 2 views", {**half, "multi_view": "dsf"}, base)
    for framework in HARD:
        plain = {"framework": framework}
        hard = {**plain, "select": "hard", "views": 4}
        yield row(f"{framework}: hard views, N = 4 / random", hard, plain)
        small = {**hard, "select_side_px": SMALL_PX}
        yield row(f"{framework}: selected at {SMALL_PX} px / random", small, plain)
    for framework in ("simclr", "moco_v2"):
        own = {**options, "framework": framework}
        pair = stepper_of(dataset, device, **own), bare_step(dataset, device, **own)
        what = f"{framework}: step / its forward and backward on ready views"
        yield compare(what, *pair, rounds, at_most=True, least_s=0.0)
    for method in ("simsiam", "simclr") if find_spec("lightly") else ():
        ours = stepper_of(dataset, device, **{**options, "framework": method})
        theirs = lightly_step(dataset, device, method, **options)
        yield compare(f"{method}: ours / lightly's modules", ours, theirs, rounds, at_most=True, least_s=0.0)
    if device != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        fp32, bf16 = ({"framework": "simsiam", "precision": each} for each in ("fp32", "bf16"))
        pair = tuple(stepper_of(dataset, device, **{**options, **each}) for each in (bf16, fp32))
        yield compare("bf16 / fp32 (speed)", *pair, rounds, least_s=0.0)


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    with tempfile.TemporaryDirectory() as folder:
        rows = list(rows_of(dataset_at(Path(folder), small=not sized(1, 0)), "cpu", rounds))
    return rows, [] if find_spec("lightly") else ["lightly: not installed (pip install lightly)"]


if __name__ == "__main__":
    main("train_step", run)
