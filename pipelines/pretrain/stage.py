"""`viewkit pretrain`: loader, recipes, views on the device, framework, step."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from viewkit.pipelines.distributed import is_main
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.frameworks.table import create_framework
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.saved import EncoderFacts, save_encoder
from viewkit.pipelines.pairs.load import QUALITY
from viewkit.pipelines.pretrain.config import PretrainConfig, PretrainSettings, resolve
from viewkit.pipelines.pretrain.pairs import check_sides, create_selector, create_source
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.loop import METRICS, train
from viewkit.pipelines.training.monitoring import read_metrics
from viewkit.pipelines.training.multi_view import MULTI_VIEW
from viewkit.pipelines.training.prepare import Optimisation, Training, prepare_training
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.codecs import encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError
from viewkit.shards.files import write_atomic

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
COUNTED = ("missing_views", "missing_pairs", "missing_quality")


class PretrainStage(FitStage[PretrainConfig]):
    """Writes config.json, encoder.safetensors with encoder.json, metrics.jsonl and checkpoint/ into ``runs/NAME``."""

    name: ClassVar[str] = "pretrain"
    resumes: ClassVar[bool] = True
    trains: ClassVar[bool] = True
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
        pairs = (config.pairs,) if config.selection.stored else ()
        quality = (QUALITY,) if config.weights == "quality" else ()
        return ("images", *genview, *pairs, *quality)

    def settings(self, config: PretrainConfig) -> dict[str, Any]:
        return resolve(config).values()

    def inputs(self, config: PretrainConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also what the policy says: a TOML file can change under the same name."""
        return {**super().inputs(config, dataset), "policy": digest(load_policy(resolve(config).policy).to_dict())}

    def fit(self, config: PretrainConfig, run: Run) -> Mapping[str, Any]:
        settings = resolve(config)
        training = prepare(settings, run)
        if is_main():
            write_atomic(run.folder / "config.json", encode_json(settings.values()))
        last = train(
            training.framework,
            training.optimiser,
            training.source,
            training.schedule,
            run,
            {"stage": self.name, **settings.values()},
            selector=training.selector,
            monitoring=training.monitoring,
        )
        if not is_main():
            return {}
        facts = EncoderFacts(
            arch=settings.arch,
            side_px=settings.side_px,
            init=settings.init,
            num_heads=settings.num_heads,
            seed=settings.seed,
            mean=training.source.policy.mean,
            std=training.source.policy.std,
        )
        save_encoder(run.folder, training.framework.encoder, facts)
        steps, lines = training.schedule.steps, read_metrics(run.folder / METRICS)
        counts = {name: sum(int(line.get(name) or 0) for line in lines) for name in COUNTED if name in lines[-1]}
        shares = shares_of(lines, steps * settings.batch_size)
        return {"steps": steps, "loss": last["loss"], "spread": last["spread"], **counts, **shares}

    def plan(self, config: PretrainConfig, run: Run) -> Mapping[str, Any]:
        settings = replace(resolve(config), log_views=None)  # a plan writes nothing
        return prepare(settings, run).plan(run.device)


def prepare(settings: PretrainSettings, run: Run) -> Training[Framework]:
    """Raises before any work where a setting does not fit the data."""
    source = create_source(settings, run)

    def build(steps: int) -> Framework:
        backbone = create_backbone(
            settings.arch, settings.side_px, init=settings.init, num_heads=settings.num_heads, seed=settings.seed
        )
        check_sides(backbone, source)
        framework = create_framework(backbone, settings, steps=steps, steps_per_epoch=source.steps_per_epoch)
        MULTI_VIEW[settings.multi_view].apply(framework, **settings.compared)
        return framework

    optimisation = Optimisation(
        optimiser=settings.optimiser,
        weight_decay=settings.weight_decay,
        weight_decay_end=settings.weight_decay_end,
        decay_all=settings.decay_all,
    )
    return prepare_training(run, source, settings, optimisation, build, create_selector(settings, run))


def shares_of(lines: Sequence[Mapping[str, Any]], num_rows: int) -> dict[str, float]:
    """What hard view selection counted, as shares of all rows: pairs of least overlap, and choices that agreed."""

    def total(name: str) -> int:
        return sum(int(line.get(name) or 0) for line in lines)

    shares = {}
    if any("lowest_iou" in line for line in lines):
        shares["lowest_iou"] = total("lowest_iou") / num_rows
    if compared := total("agreement_rows"):
        shares["hard_agreement"] = total("agreement_same") / compared
    return shares
