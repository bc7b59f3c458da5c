"""What `gpu.py` checks and measures. Every function gives rows, whose names and goals are in goals.toml.

Equality with the CPU is measured in fp32 without TF32, on the same weights, images and recipes.
"""

import copy
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import generate
import numpy as np
import score
import torch
import torch.distributed as dist
import train_step
import views
from harness import Fact, Row, compare
from torch import Tensor

from viewkit.pipelines import distributed
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.renderer import VARIABLE
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.frameworks.table import FRAMEWORKS
from viewkit.pipelines.hard_views.forward import forward_pairs, losses_of_pairs
from viewkit.pipelines.hard_views.pairs import select_hardest
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.pairs.samples import SampleReader, load_image
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.stage import prepare
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.scorer import RowImages, Scorer
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.loop import Window
from viewkit.pipelines.training.loop import train_step as one_step
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import pixel_boxes
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.shards.dataset import Dataset

POLICIES = ("moco_v3", "strengthened", "dsf_cifar")
"""With blur and solarize, as VS-2FI has them, and with RandAugment."""
LEVEL = 0.05
"""Of 255. Rounding in a blur or a hue is far below; a value that solarize sees on the other side is above."""
WARM, STEPS = 5, 30
GPU_CASE = score.Case("vit-s16-224", 160, 500, 512)


@dataclass(frozen=True)
class Setup:
    """device: that is compared with the CPU. tiny: everything in miniature; its numbers mean nothing."""

    device: str
    tiny: bool
    rounds: int

    def sized(self, full: Any, tiny: Any) -> Any:
        return tiny if self.tiny else full

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def peak_gb(self) -> float:
        """Of the device's memory since the last call; the process's on a CPU."""
        if self.device != "cuda":
            return score.peak_mb() / 1024
        found = torch.cuda.max_memory_allocated() / 2**30
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return found


@contextmanager
def exact_fp32() -> Iterator[None]:
    """No TF32: its products keep ten bits."""
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        torch.set_float32_matmul_precision(before[1])


def equal_views(setup: Setup) -> list[Row | Fact]:
    """Views of the same recipes on both devices, in levels of 255; the CPU renders by torch's operations."""
    rows: list[Row | Fact] = []
    os.environ[VARIABLE] = "torch"
    for name in POLICIES:
        for side in (32, 224):
            policy = load_policy(name).with_side(setup.sized(side, side // 4))
            pictures = views.photographs(setup.sized(48, 4), setup.sized((375, 500), (60, 80)))
            ours = views.Ours(policy, pictures, "torch")
            levels = 255 * torch.tensor(policy.std)[:, None, None]
            expected = ours.render().clone() * levels
            found = rendered_on(setup, ours) * levels
            off = (found.cpu() - expected).abs()
            where = f"views, {name}, {side} px"
            rows.append(Fact(f"{where}: share of values more than {LEVEL} levels off the CPU's",
                             float((off > LEVEL).double().mean())))  # fmt: skip
            rows.append(Fact(f"{where}: mean levels off the CPU's", float(off.mean())))
    return rows


def rendered_on(setup: Setup, ours: views.Ours) -> Tensor:
    images = [image.to(setup.device) for image in ours.images]
    policy = ours.policy
    return render(
        images, ours.recipes, ours.index, side_px=policy.side_px, mean=policy.mean, std=policy.std,
        interpolation=policy.interpolation,
    ).cpu()  # fmt: skip


def demo_dataset(folder: str) -> Dataset:
    from viewkit.pipelines.pack.config import PackConfig
    from viewkit.pipelines.pack.stage import PackStage

    dataset = Dataset(Path(folder) / "demo")
    run_stage(PackStage("demo:test"), PackConfig(), dataset, Execution(device="cpu"))
    return dataset


def trained(dataset: Dataset, setup: Setup, **options: Any) -> tuple[Framework, Any]:
    """A framework on the CPU, in training, and a batch for it."""
    small = {"arch": setup.sized("resnet18_cifar", "resnet10_narrow"), "side_px": setup.sized(32, 16),
             "batch_size": setup.sized(64, 16), "steps": 100}  # fmt: skip
    training = prepare(resolve(PretrainConfig(**{**small, **options})), Run(dataset, dataset.path / "x", "pretrain"))
    return training.framework.train(), next(training.source.epoch(0))


def equal_losses(setup: Setup) -> list[Row | Fact]:
    """The loss of the same batch and weights on both devices, relative to the CPU's."""
    rows: list[Row | Fact] = []
    with tempfile.TemporaryDirectory() as folder, exact_fp32():
        dataset = demo_dataset(folder)
        runs: dict[str, dict[str, Any]] = {name: {"framework": name} for name in FRAMEWORKS}
        runs["swav"]["prototype_freeze_steps"] = runs["dino"]["last_freeze_epochs"] = 0
        runs["moco_v3, DSF"] = {"framework": "moco_v3", "views_per_side": 2, "multi_view": "dsf"}
        for name, options in runs.items():
            framework, batch = trained(dataset, setup, **options)
            there = copy.deepcopy(framework).to(setup.device)
            expected = framework.loss(batch.views)
            found = there.loss(tuple(view.to(setup.device) for view in batch.views))
            rows.append(Fact(f"loss, {name}: off the CPU's, relative", relative(found, expected)))
    return rows


def relative(found: Tensor, expected: Tensor) -> float:
    return float(abs(found.detach().cpu().double() - expected.detach().double()) / abs(expected.detach().double()))


def equal_selection(setup: Setup) -> list[Row | Fact]:
    """Hard views on the device, judged by the CPU's losses: hardness captured, 1 where the hardest pairs were taken."""
    rows: list[Row | Fact] = []
    with tempfile.TemporaryDirectory() as folder, exact_fp32():
        dataset = demo_dataset(folder)
        for name in ("simclr", "moco_v2"):
            framework, batch = trained(dataset, setup, framework=name, select="hard", views=4)
            stepper = Stepper.make("cpu")
            losses = losses_of_pairs(framework, forward_pairs(framework, batch.views, stepper).outputs, stepper)
            there = copy.deepcopy(framework).to(setup.device)
            moved = tuple(view.to(setup.device) for view in batch.views)
            for precision in ("fp32", "bf16"):
                stepper = Stepper.make(setup.device, precision)
                found = losses_of_pairs(there, forward_pairs(there, moved, stepper).outputs, stepper)
                chosen = losses.gather(1, select_hardest(found).cpu()[:, None])[:, 0]
                mean, worst = losses.mean(dim=1), losses.amax(dim=1)
                captured = ((chosen - mean).sum() / (worst - mean).sum()).item()
                rows.append(Fact(f"hard views, {name}, selected in {precision}: hardness captured", captured))
    return rows


def equal_scores(setup: Setup) -> list[Row | Fact]:
    """Similarities of candidate pairs by the same estimator on both devices."""
    case = setup.sized(score.Case("tiny-64", 160, 96, 64), score.Case("pico-32", 160, 40, 16))
    with tempfile.TemporaryDirectory() as name, exact_fp32():
        dataset = score.jpeg_dataset(Path(name) / "data", case.image_px, case.images)
        preset = score.PRESETS[case.preset]
        score.make_estimator(dataset, arch=preset.arch, side_px=preset.side_px)
        run_stage(HistogramsStage(), HistogramsConfig(negatives=7, images=8), dataset, Execution(device="cpu"))
        histograms = Histograms.load(dataset.artifact("histograms"))
        found = {}
        for device in ("cpu", setup.device):
            estimator = Estimator.load(dataset.artifact("estimator"), device)
            policy = load_policy("strengthened").with_side(estimator.side_px)
            scorer = Scorer(estimator, histograms, policy, ScoreConfig(), "score")
            rows = islice(score.all_rows(dataset), score.ROWS_PER_BATCH)
            decoded = [RowImages(row.key, load_image(row.fields, device)) for row in rows]
            found[device] = scorer.score_round(decoded, 0)[1]
        off = float(np.abs(found["cpu"] - found[setup.device]).max())
    return [Fact("similarities of candidate pairs: largest difference from the CPU's", off)]


def rendering(setup: Setup) -> list[Row | Fact]:
    """Views of images that lie on the device, recipes given, against what reading the crops and writing the views
    takes of its memory, and against torchvision v2 view by view on the same device."""
    rows: list[Row | Fact] = []
    for name, side, size, count in (("moco_v3", 224, (375, 500), 256), ("cifar", 32, (32, 32), 4096)):
        policy = load_policy(name).with_side(setup.sized(side, 16))
        pictures = views.photographs(setup.sized(64, 8), setup.sized(size, (40, 50)))
        ours = views.Ours(policy, pictures, "torch")
        images = [image.to(setup.device) for image in ours.images]
        index = np.resize(ours.index, 2 * setup.sized(count, 8))
        recipes = np.resize(ours.recipes, (len(index), ours.recipes.shape[1]))
        out = torch.empty(len(index), 3, policy.side_px, policy.side_px, device=setup.device)

        def ours_now(policy: Any = policy, images: Any = images, index: Any = index, recipes: Any = recipes,
                     out: Tensor = out) -> None:  # fmt: skip
            render(images, recipes, index, side_px=policy.side_px, mean=policy.mean, std=policy.std,
                   interpolation=policy.interpolation, out=out)  # fmt: skip
            setup.wait()

        chains = [views.torchvision_v2(policy, spec) for spec in (0, 1)]
        planar = [image.permute(2, 0, 1).contiguous() for image in images[:16]]
        share = len(planar) * 2 / len(index)

        def theirs(chains: Any = chains, planar: Any = planar) -> None:
            for image in planar:
                for chain in chains:
                    chain(image)
            setup.wait()

        row = compare(f"rendering, {side} px / torchvision v2 on the device", ours_now, theirs, setup.rounds,
                      units=len(index))  # fmt: skip
        speed = [each / share for each in (row.ratio, row.lowest, row.highest)]
        rows.append(replace(row, ratio=speed[0], lowest=speed[1], highest=speed[2], peer_s=row.peer_s / share))
        rows.append(Fact(f"rendering, {side} px: views a second", 1 / row.ours_s))
        sizes = np.array([image.shape[:2] for image in images])[index]
        boxes = pixel_boxes(recipes, sizes)
        moved = 3 * float((boxes[:, 2] * boxes[:, 3]).sum()) + out.nbytes
        rows.append(Fact(f"rendering, {side} px: share of the memory roof",
                         moved / (row.ours_s * len(index)) / copy_bandwidth(setup)))  # fmt: skip
        rows.append(Fact(f"rendering, {side} px: peak memory, GB", setup.peak_gb()))
    return rows


def copy_bandwidth(setup: Setup) -> float:
    """Bytes a second that a copy inside the device's memory reads and writes."""
    source = torch.zeros(setup.sized(2**30, 2**20), dtype=torch.uint8, device=setup.device)
    target = torch.empty_like(source)

    def work() -> None:
        target.copy_(source)
        setup.wait()

    work()
    return 2 * source.nbytes / min(score.timed(work) for _ in range(20))


def scoring(setup: Setup) -> list[Row | Fact]:
    """`viewkit score` with the paper's estimator against a bare forward pass, and that against a matrix product."""
    case, device = setup.sized(GPU_CASE, score.Case("pico-32", 8, 40, 16)), setup.device
    with tempfile.TemporaryDirectory() as folder:
        rows = score.compare_scoring(Path(folder), case, device, setup.rounds, name="vit-s16-224 cuda")
    (row,) = [row for row in rows if isinstance(row, Row) and row.what.startswith("scoring / bare forward")]
    rows = [row for row in rows if not row.what.startswith(("rendering", "a round", "similarities", "peak memory"))]
    rows.append(Fact("scoring, vit-s16-224 cuda: views a second", 1 / row.ours_s))
    rows.append(Fact("scoring, vit-s16-224 cuda: peak memory, GB", setup.peak_gb()))
    for precision in ("fp32", "bf16"):
        rows += score.compare_forward(case, precision, device, setup.rounds, name=f"vit-s16-224 {precision} cuda")
    return rows


def photographs_dataset(folder: str, setup: Setup) -> Dataset:
    return score.jpeg_dataset(Path(folder) / "photographs", setup.sized(448, 40), setup.sized(2048, 32))


def vit(setup: Setup, **options: Any) -> dict[str, Any]:
    """Options of ViT-S/16 at 224 px, two views."""
    arch, side_px = setup.sized(("vit_small_patch16_224", 224), ("vit_pico_patch4", 16))
    own = {"framework": "moco_v3", "arch": arch, "side_px": side_px, "batch_size": setup.sized(256, 8)}
    return {**own, "precision": "bf16", "steps": 10_000, **options}


def pretraining(setup: Setup) -> list[Row | Fact]:
    """Steps of ViT-S/16 at 224 px from JPEGs, every image decoded each time."""
    rows: list[Row | Fact] = []
    with tempfile.TemporaryDirectory() as folder:
        dataset = photographs_dataset(folder, setup)
        for precision in ("bf16", "fp16", "fp32"):
            config = PretrainConfig(**vit(setup, precision=setup.sized(precision, "bf16")))
            run = Run(dataset, dataset.path / "x", "pretrain", device=setup.device)
            training = prepare(resolve(config), run)
            reader = training.source.loader.transform
            assert isinstance(reader, SampleReader)
            reader.cache_bytes = 0
            framework, stepper = training.framework.train(), Stepper.make(setup.device, config.precision)
            batches = (batch for epoch in range(10**6) for batch in training.source.epoch(epoch))
            setup.peak_gb()
            window = Window(0)
            for number, batch in enumerate(islice(batches, setup.sized(WARM + STEPS, 3))):
                if number == setup.sized(WARM, 1):
                    setup.wait()
                    window = Window(framework.step)
                window.add(one_step(framework, training.optimiser, batch, training.schedule, stepper), batch)
            line = window.line(framework, training.source.steps_per_epoch, training.schedule)
            batches.close()
            where = f"pretraining, ViT-S/16, 224 px, {precision}"
            rows += [
                Fact(f"{where}: images a second", float(line["images_per_s"])),
                Fact(f"{where}: share of the time that waits for rows", float(line["wait_share"])),
                Fact(f"{where}: peak memory, GB", setup.peak_gb()),
            ]
            assert torch.isfinite(torch.tensor(line["loss"])), f"{where}: the loss is {line['loss']}"
    return rows


def compiled_steps(setup: Setup) -> list[Row | Fact]:
    """A whole step against its bare network, and with torch.compile against without."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = photographs_dataset(folder, setup)
        step = train_step.stepper_of(dataset, setup.device, **vit(setup))
        bare = train_step.bare_step(dataset, setup.device, **vit(setup))
        what = "ViT-S/16, 224 px: step / its forward and backward on ready views"
        rows = [compare(what, step, bare, setup.rounds, at_most=True, least_s=0.0)]
        if setup.tiny:
            return list(rows)  # compiling for a CPU takes minutes
        compiled = train_step.stepper_of(dataset, setup.device, **vit(setup, compile=True))
        what = "ViT-S/16, 224 px: compiled step / step"
        return [*rows, compare(what, compiled, step, setup.rounds, at_most=True, least_s=0.0)]


def training_steps(setup: Setup) -> list[Row | Fact]:
    """The rows of `train_step.py` on the device: ResNet-18 with the CIFAR stem, 32 px."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = train_step.dataset_at(Path(folder), small=setup.tiny)
        small = {"arch": "resnet10_narrow", "batch_size": 32} if setup.tiny else {"batch_size": 256}
        found = train_step.rows_of(dataset, setup.device, setup.rounds, **small)
        return [replace(row, what=f"{row.what}, cuda") for row in (islice(found, 4) if setup.tiny else found)]


def processes(setup: Setup) -> list[Row | Fact]:
    """What several processes exchange, through NCCL in a group of one: every value and gradient must come back."""
    backend = "nccl" if setup.device == "cuda" else "gloo"
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(backend, init_method=f"file://{folder}/group", rank=0, world_size=1)
        try:
            off = [exchanged(setup, dtype) for dtype in (torch.float32, torch.bfloat16, torch.float64)]
        finally:
            dist.destroy_process_group()
    return [Fact("exchange between processes, NCCL, a group of one: largest change", max(off))]


def exchanged(setup: Setup, dtype: torch.dtype) -> float:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(setup.sized(4096, 8), 256, generator=generator).to(setup.device, dtype).requires_grad_()
    changes: list[Tensor] = []
    exchange: tuple[Callable[[Tensor], Tensor], ...] = (distributed._Gather.apply, distributed._Sum.apply)
    for function in exchange:
        (gradient,) = torch.autograd.grad((function(x) * 2).sum(), x)
        changes += [(function(x) - x).abs().max(), (gradient - 2).abs().max()]
    gradients = [x.detach().clone(), x.detach().clone()[:3]]
    distributed._average(gradients)
    changes += [(gradients[0] - x).abs().max()]
    return max(float(change.detach()) for change in changes)


def generating(setup: Setup) -> list[Row | Fact]:
    """The rows of `generate.py`, and the same pictures in fp16."""
    with tempfile.TemporaryDirectory() as folder:
        world = generate.make_world(Path(folder), setup.sized(15, 5), device=setup.device, full=not setup.tiny)
        where = "images (cuda, bf16, 768 px)"
        ours = world.ours()
        rows: list[Row | Fact] = [
            compare(f"{where} / stock, one at a time", ours, world.one_at_a_time, setup.sized(2, 1), units=15),
            compare(f"{where} / stock, a batch a level", ours, world.batched, setup.sized(2, 1), units=15),
        ]
        if setup.device == "cuda":
            half = world.ours(generate.Unclip.load(world.folder, world.encoder.width, "fp16", "checkpoint"))
            rows.append(compare("generating in fp16 / bf16", half, ours, 2, units=15))
            off = np.abs(half().astype(int) - ours().astype(int)).mean()
            rows.append(Fact("generating in fp16: mean grey levels off bf16", float(off)))
        rows.append(Fact("generating: peak memory, GB", setup.peak_gb()))
    return rows
