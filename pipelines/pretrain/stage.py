"""`viewkit pretrain`: loader, recipes, views on the device, framework, step."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torch.optim import Optimizer

from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.encoder import EncoderFacts, save_encoder
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.frameworks.create import create_framework
from viewkit.pipelines.stage import FitStage, Run
from viewkit.pipelines.training.duration import count_steps
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.loop import METRICS, Schedule, time_steps, train
from viewkit.pipelines.training.metrics import read_metrics
from viewkit.pipelines.training.optimisers import create_optimiser
from viewkit.pipelines.training.pair_loader import load_pairs
from viewkit.pipelines.training.pairs import PairSource
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.codecs import encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError
from viewkit.shards.files import write_whole

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
COUNTED = ("missing_views", "missing_pairs")


class PretrainStage(FitStage[PretrainConfig]):
    """Writes config.json, encoder.safetensors with encoder.json, metrics.jsonl and checkpoint/ into ``runs/NAME``."""

    name: ClassVar[str] = "pretrain"
    resumes: ClassVar[bool] = True
    shown_as: ClassVar[str] = "runs/NAME"
    holds: ClassVar[Mapping[str, str]] = {
        "encoder.safetensors": "the backbone alone, under timm's names",
        "encoder.json": "its architecture, the side of its views in px, mean and std of its inputs",
        "config.json": "every option, defaults filled in",
        "metrics.jsonl": "a line every few steps: loss, learning rate, spread of features, images/s, share of waiting",
        "checkpoint/": "everything needed to go on: networks, optimiser, step",
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
        pairs = (config.pairs,) if config.select == "vs2fi" else ()
        return ("images", *genview, *pairs)

    def inputs(self, config: PretrainConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also what the policy says: a TOML file can change under the same name."""
        return {**super().inputs(config, dataset), "policy": digest(load_policy(config.settings.policy).to_dict())}

    def fit(self, config: PretrainConfig, run: Run) -> Mapping[str, Any]:
        source, schedule, framework, optimiser = _prepare(config, run)
        write_whole(run.folder / "config.json", encode_json(self.settings(config)))
        last = train(framework, optimiser, source, schedule, run, {"stage": self.name, **self.settings(config)})
        facts = EncoderFacts(
            arch=config.arch,
            side_px=config.side_px,
            start=config.start,
            num_heads=config.num_heads,
            seed=config.seed,
            mean=source.policy.mean,
            std=source.policy.std,
        )
        save_encoder(run.folder, framework.encoder, facts)
        lines = read_metrics(run.folder / METRICS)
        counts = {name: sum(int(line[name] or 0) for line in lines) for name in COUNTED if name in lines[-1]}
        return {"steps": schedule.steps, "loss": last["loss"], "spread": last["spread"], **counts}

    def plan(self, config: PretrainConfig, run: Run) -> Mapping[str, Any]:
        source, schedule, framework, optimiser = _prepare(config, run)
        step_s = time_steps(framework, optimiser, source, schedule, run.device)
        return {
            "rows": source.loader.num_rows,
            "steps": schedule.steps,
            "step_s": round(step_s, 4),
            "estimated_s": round(step_s * schedule.steps, 1),
        }


def _prepare(config: PretrainConfig, run: Run) -> tuple[PairSource, Schedule, Framework, Optimizer]:
    """Everything the loop needs; raises before any work where an option does not fit the data."""
    s = config.settings
    source = load_pairs(
        run.dataset,
        policy=s.policy,
        side_px=config.side_px,
        batch_size=config.batch_size,
        select=config.select,
        pairs=config.pairs,
        k_sc=config.k_sc,
        k_al=config.k_al,
        alpha=config.alpha,
        seed=config.seed,
        stage=run.stage,
        device=run.device,
    )
    steps, warmup = count_steps(
        epochs=config.epochs,
        steps=config.steps,
        warmup_epochs=config.warmup_epochs,
        steps_per_epoch=source.steps_per_epoch,
    )
    schedule = Schedule(
        steps=steps, warmup_steps=warmup, peak_lr=s.lr * config.batch_size / 256, precision=config.precision
    )
    backbone = create_backbone(
        config.arch, config.side_px, start=config.start, num_heads=config.num_heads, seed=config.seed
    )
    framework = create_framework(backbone, config, steps=steps).to(run.device)
    return source, schedule, framework, create_optimiser(s.optimiser, framework.groups(s.weight_decay))
