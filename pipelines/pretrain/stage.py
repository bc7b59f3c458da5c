"""`viewkit pretrain`: loader, recipes, views on the device, framework, step."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from viewkit.pipelines.distributed import is_main
from viewkit.pipelines.encoders.names import encoder_reads
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.frameworks.table import card_of, create_framework
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.saved import EncoderFacts, save_encoder
from viewkit.pipelines.pairs.filter import filter_lines
from viewkit.pipelines.pairs.stored import StoredPairs
from viewkit.pipelines.pretrain.config import PretrainConfig, PretrainSettings, resolve
from viewkit.pipelines.pretrain.pairs import check_sides, create_selector, create_source
from viewkit.pipelines.pretrain.quality import RATER, rater_inputs
from viewkit.pipelines.training.cost import count_step
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.loop import BatchSelector, train
from viewkit.pipelines.training.metrics import METRICS, read_metrics
from viewkit.pipelines.training.multi_view import MULTI_VIEW
from viewkit.pipelines.training.prepare import Optimisation, Training, prepare_training
from viewkit.pipelines.training.presets import settled_precision
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.codecs import encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError
from viewkit.shards.files import write_atomic
from viewkit.shards.spans import spanned

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
COUNTED = ("missing_views", "missing_pairs", "missing_quality", "missing_truth")


class PretrainStage(FitStage[PretrainConfig]):
    """Writes config.json, encoder.safetensors with encoder.json, metrics.jsonl and checkpoint/ into ``runs/NAME``.

    Version 3: the views that --log-views writes have the keys of their images.
    """

    name: ClassVar[str] = "pretrain"
    elsewhere: ClassVar[str] = (
        "another --name (also for more epochs or steps: a finished run is not trained further, its learning rate has "
        "come to its end)"
    )
    version: ClassVar[int] = 4
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
        "views/": "with --log-views, STEP.npz: keys [n], recipes [n v p], images' sizes_px [n v 2], losses and iou of "
        "all pairs [n c], the chosen views [n 2]",
    }

    def __init__(self, name: str, encoder_weights: Path | None = None) -> None:
        if not NAME.fullmatch(name):
            raise ConfigError(f"run name is '{name}'; use letters, digits, '_', '-' and '.', e.g. moco-vs2fi")
        self.run, self.encoder_weights = name, encoder_weights

    @property
    def writes(self) -> str:
        return f"runs/{self.run}"

    def reads(self, config: PretrainConfig) -> tuple[str, ...]:
        genview = (config.genview,) if config.alpha > 0 else ()
        pairs = (config.pairs,) if config.selection.stored else ()
        quality = (RATER if config.rates_fresh else config.quality_column,) if config.weights == "quality" else ()
        by_share = ("histograms",) if config.selection.filters and config.k_sc is None else ()
        boxes = () if config.crop_box is None else encoder_reads(config.crop_box_encoder)
        return ("images", *genview, *pairs, *by_share, *quality, *boxes)

    def for_images(self, config: PretrainConfig, dataset: Dataset, device: str) -> PretrainConfig:
        """A precision "auto" decided."""
        return replace(config, precision=settled_precision(config.precision, dataset, self.writes, device))

    def settings(self, config: PretrainConfig) -> dict[str, Any]:
        return resolve(config).values()

    def inputs(self, config: PretrainConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also what the policy says: a TOML file can change under the same name."""
        inputs = {**super().inputs(config, dataset), "policy": digest(load_policy(resolve(config).policy).to_dict())}
        if not config.rates_fresh:
            return inputs
        return {**inputs, **rater_inputs(dataset, self.name, self.encoder_weights)}

    def check(self, config: PretrainConfig) -> None:
        if self.encoder_weights is not None and not config.rates_fresh:
            raise ConfigError(
                f"--encoder-weights is {self.encoder_weights}: it needs --weights quality and views sampled anew"
            )

    def fit(self, config: PretrainConfig, run: Run) -> Mapping[str, Any]:
        settings = resolve(config)
        training = prepare(settings, run, self.encoder_weights)
        if is_main():
            for line in filter_lines_of(settings, run):
                run.progress.message(f"{self.name}: {line}")
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
        if is_main():
            self._save(settings, training, run)
        cost = count_step(
            training.framework,
            training.optimiser,
            training.source,
            training.schedule,
            run.device,
            selector=self._counted(settings, training, run),
        )
        if not is_main():
            return {}
        steps, lines = training.schedule.steps, read_metrics(run.folder / METRICS)
        counts = {name: sum(int(line.get(name) or 0) for line in lines) for name in COUNTED if name in lines[-1]}
        shares = shares_of(lines, steps * settings.batch_size)
        if settings.selection.filters and isinstance(training.source.sampler, StoredPairs):
            shares["k_sc"] = training.source.sampler.limits.k_sc
        own = card_of(settings.framework).fitted(settings.own, steps) if settings.fit_momentum else settings.own
        if "momentum" in own:
            shares["momentum"] = own["momentum"]
        return {
            "steps": steps,
            "warmup_steps": training.schedule.warmup_steps,
            "loss": last["loss"],
            "spread": last["spread"],
            **counts,
            **shares,
            **cost,
        }

    def _counted(self, settings: PretrainSettings, training: Training[Framework], run: Run) -> BatchSelector | None:
        """The training's selector, which would log the step that is counted, without its log."""
        if settings.log_views is None:
            return training.selector
        return create_selector(replace(settings, log_views=None), run, self.encoder_weights)

    def _save(self, settings: PretrainSettings, training: Training[Framework], run: Run) -> None:
        facts = EncoderFacts(
            arch=settings.arch,
            side_px=settings.side_px,
            init=settings.init,
            num_heads=settings.num_heads,
            seed=settings.seed,
            mean=training.source.policy.mean,
            std=training.source.policy.std,
        )
        save_encoder(run.folder, training.framework.kept, facts)

    def plan(self, config: PretrainConfig, run: Run) -> Mapping[str, Any]:
        settings = replace(resolve(config), log_views=None)  # a plan writes nothing
        return prepare(settings, run, self.encoder_weights).plan(run.device)


@spanned("prepare")
def prepare(settings: PretrainSettings, run: Run, encoder_weights: Path | None = None) -> Training[Framework]:
    """Raises before any work where a setting does not fit the data. encoder_weights: see `open_rater`."""
    source = create_source(settings, run)

    def build(steps: int) -> Framework:
        backbone = create_backbone(
            settings.arch,
            settings.side_px,
            init=settings.init,
            num_heads=settings.num_heads,
            drop_path=settings.drop_path,
            seed=settings.seed,
        )
        check_sides(backbone, source)
        framework = create_framework(backbone, settings, steps=steps, steps_per_epoch=source.steps_per_epoch)
        framework.joins_sides = settings.views_per_side > 1 and not settings.norms_per_view
        MULTI_VIEW[settings.multi_view].apply(framework, **settings.compared)
        return framework

    optimisation = Optimisation(
        optimiser=settings.optimiser,
        weight_decay=settings.weight_decay,
        weight_decay_end=settings.weight_decay_end,
        decay_all=settings.decay_all,
        lr_end=settings.lr_end,
        lr_schedule=settings.lr_schedule,
    )
    return prepare_training(run, source, settings, optimisation, build, create_selector(settings, run, encoder_weights))


def filter_lines_of(settings: PretrainSettings, run: Run) -> list[str]:
    """What VS-2FI's filters will do, for people; nothing for other selections."""
    if not settings.selection.filters:
        return []
    return filter_lines(run.dataset, settings.pairs, settings.k_sc, settings.filter_share)


def shares_of(lines: Sequence[Mapping[str, Any]], num_rows: int) -> dict[str, float]:
    """What the selections counted, as shares of the rows they concern: rows without a pair that the selection asks for,
    pairs of least overlap, and choices that agreed."""

    def total(name: str) -> int:
        return sum(int(line.get(name) or 0) for line in lines)

    shares = {}
    if any("relaxed_pairs" in line for line in lines):
        shares["relaxed"] = total("relaxed_pairs") / num_rows
    if comparable := total("lowest_iou_rows"):
        shares["lowest_iou"] = total("lowest_iou") / comparable
    if compared := total("agreement_rows"):
        shares["hard_agreement"] = total("agreement_same") / compared
    return shares
