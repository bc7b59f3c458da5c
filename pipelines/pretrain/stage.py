"""`viewkit pretrain`: loader, recipes, views on the device, framework, step."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch.optim import Optimizer

from viewkit.pipelines.distributed import is_main
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.encoder import EncoderFacts, save_encoder
from viewkit.pipelines.models.shared_norm import share_norms
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.frameworks.create import create_framework
from viewkit.pipelines.pretrain.view_options import STORED
from viewkit.pipelines.pretrain.views import check_sides, create_picker, create_source
from viewkit.pipelines.stage import FitStage, Run
from viewkit.pipelines.training.duration import count_steps
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.loop import METRICS, Picker, Schedule, Watching, time_steps, train
from viewkit.pipelines.training.metrics import read_metrics
from viewkit.pipelines.training.multi_view import set_multi_view
from viewkit.pipelines.training.optimisers import create_optimiser, decay_all
from viewkit.pipelines.training.pair_loader import QUALITY
from viewkit.pipelines.training.pairs import PairSource
from viewkit.pipelines.training.probes import KnnProbe
from viewkit.pipelines.training.samples import SampleReader
from viewkit.pipelines.training.step import check_micro_batch, compile_backbones
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.codecs import encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError
from viewkit.shards.files import write_whole

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
COUNTED = ("missing_views", "missing_pairs", "missing_quality")


class PretrainStage(FitStage[PretrainConfig]):
    """Writes config.json, encoder.safetensors with encoder.json, metrics.jsonl and checkpoint/ into ``runs/NAME``."""

    name: ClassVar[str] = "pretrain"
    resumes: ClassVar[bool] = True
    distributed: ClassVar[bool] = True
    logs: ClassVar[tuple[str, ...]] = ("metrics.jsonl", "tensorboard", "checkpoint")
    shown_as: ClassVar[str] = "runs/NAME"
    holds: ClassVar[Mapping[str, str]] = {
        "encoder.safetensors": "the backbone alone, under timm's names",
        "encoder.json": "its architecture, the side of its views in px, mean and std of its inputs",
        "config.json": "every option, defaults filled in",
        "metrics.jsonl": "a line every few steps: loss, learning rate, spread and rank of features, images/s, waiting",
        "tensorboard/": "with --tensorboard, the same numbers",
        "checkpoint/": "everything needed to go on: networks, optimiser, step",
        "views/": "with --log-views, STEP.npz: recipes [n v p], images' sizes_px [n v 2], losses and iou of all pairs "
        "[n c], the chosen views [n 2]",
    }

    def __init__(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise ConfigError(f"run name is '{name}'; use letters, digits, '_', '-' and '.', e.g. moco-vs2fi")
        self.run = name

    @property
    def writes(self) -> str:
        return f"runs/{self.run}"

    def reads(self, config: PretrainConfig) -> tuple[str, ...]:
        genview = ("genview",) if config.alpha > 0 else ()
        pairs = (config.pairs,) if config.select in STORED else ()
        quality = (QUALITY,) if config.weights == "quality" else ()
        return ("images", *genview, *pairs, *quality)

    def inputs(self, config: PretrainConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also what the policy says: a TOML file can change under the same name."""
        return {**super().inputs(config, dataset), "policy": digest(load_policy(config.settings.policy).to_dict())}

    def fit(self, config: PretrainConfig, run: Run) -> Mapping[str, Any]:
        training = prepare(config, run)
        if is_main():
            write_whole(run.folder / "config.json", encode_json(self.settings(config)))
        last = train(
            training.framework,
            training.optimiser,
            training.source,
            training.schedule,
            run,
            {"stage": self.name, **self.settings(config)},
            picker=training.picker,
            watching=training.watching,
        )
        if not is_main():
            return {}
        facts = EncoderFacts(
            arch=config.arch,
            side_px=config.side_px,
            start=config.settings.start,
            num_heads=config.num_heads,
            seed=config.seed,
            mean=training.source.policy.mean,
            std=training.source.policy.std,
        )
        save_encoder(run.folder, training.framework.encoder, facts)
        steps, lines = training.schedule.steps, read_metrics(run.folder / METRICS)
        counts = {name: sum(int(line.get(name) or 0) for line in lines) for name in COUNTED if name in lines[-1]}
        shares = shares_of(lines, steps * config.batch_size)
        return {"steps": steps, "loss": last["loss"], "spread": last["spread"], **counts, **shares}

    def plan(self, config: PretrainConfig, run: Run) -> Mapping[str, Any]:
        training = prepare(replace(config, log_views=None), run)
        steps = training.schedule.steps
        step_s = time_steps(
            training.framework,
            training.optimiser,
            training.source,
            training.schedule,
            run.device,
            picker=training.picker,
        )
        return {
            "rows": training.source.loader.num_rows,
            "steps": steps,
            "step_s": round(step_s, 4),
            "estimated_s": round(step_s * steps, 1),
        }


@dataclass(frozen=True)
class Training:
    """Everything the loop needs."""

    framework: Framework
    optimiser: Optimizer
    source: PairSource
    schedule: Schedule
    picker: Picker | None
    watching: Watching


def prepare(config: PretrainConfig, run: Run) -> Training:
    """Raises before any work where an option does not fit the data."""
    s = config.settings
    source = create_source(config, run)
    steps, warmup = count_steps(
        epochs=config.epochs,
        steps=config.steps,
        warmup_epochs=config.warmup_epochs,
        steps_per_epoch=source.steps_per_epoch,
    )
    schedule = Schedule(
        steps=steps,
        warmup_steps=warmup,
        peak_lr=s.lr * config.batch_size / 256,
        weight_decay=None if s.weight_decay_end is None else (s.weight_decay, s.weight_decay_end),
        precision=config.precision,
        micro_batch=config.micro_batch,
    )
    backbone = create_backbone(config.arch, config.side_px, start=s.start, num_heads=config.num_heads, seed=config.seed)
    check_sides(backbone, source)
    check_micro_batch(backbone, config.micro_batch, source.loader.batch_size)
    framework = create_framework(backbone, config, steps=steps, steps_per_epoch=source.steps_per_epoch)
    share_norms(framework, run.device)
    framework = framework.to(run.device)
    set_multi_view(framework, config.multi_view, shrink=config.dsf_shrink, exact=config.dsf_exact)
    watching = watching_of(config, run, source)
    groups = framework.groups(s.weight_decay)
    optimiser = create_optimiser(s.optimiser, decay_all(groups, s.weight_decay) if s.decay_all else groups)
    if config.compile:
        compile_backbones(framework)
    return Training(framework, optimiser, source, schedule, create_picker(config, run), watching)


def watching_of(config: PretrainConfig, run: Run, source: PairSource) -> Watching:
    """What is looked at on the way; `ConfigError` when neighbours are to be asked and the images have no labels."""
    if config.knn_epochs is None:
        return Watching(tensorboard=config.tensorboard)
    probe = KnnProbe(run.dataset.column("images"), SampleReader(), source.policy, run.device)
    probe.check("knn_epochs", config.knn_epochs)
    steps = config.knn_epochs * source.steps_per_epoch
    return Watching(probe=probe, probe_steps=steps, tensorboard=config.tensorboard)


def shares_of(lines: Sequence[Mapping[str, Any]], num_rows: int) -> dict[str, float]:
    """Of what hard view selection counted, as shares of all rows: pairs that overlap least, and choices that agreed."""

    def total(name: str) -> int:
        return sum(int(line.get(name) or 0) for line in lines)

    shares = {}
    if any("lowest_iou" in line for line in lines):
        shares["lowest_iou"] = total("lowest_iou") / num_rows
    if looked := total("agreement_rows"):
        shares["hard_agreement"] = total("agreement_same") / looked
    return shares
