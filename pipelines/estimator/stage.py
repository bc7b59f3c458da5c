"""`viewkit estimator`: train it, and write it for every stage that scores with it."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

from viewkit.pipelines.distributed import is_main, rank, share_of_batch, world_size
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.estimator.choose import choose_preset, situation_of
from viewkit.pipelines.estimator.config import PRESETS, EstimatorConfig, EstimatorSettings, Preset, resolve
from viewkit.pipelines.estimator.heads import encode_once, train_heads
from viewkit.pipelines.estimator.model import ExitMoCoV3
from viewkit.pipelines.estimator.trunk import check_trunk, open_trunk
from viewkit.pipelines.frameworks.table import card_of
from viewkit.pipelines.models.architectures import kind_of
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.checkpoint import save_tensors
from viewkit.pipelines.models.estimator import FACTS, WEIGHTS, EstimatorNetwork
from viewkit.pipelines.pairs.overlapping import CANDIDATES, OverlappingPairs
from viewkit.pipelines.pairs.plan import RecipeSampler
from viewkit.pipelines.pairs.random import RandomPairs, RandomViews
from viewkit.pipelines.pairs.samples import Sample, SampleReader
from viewkit.pipelines.pairs.source import PairSource
from viewkit.pipelines.training.cost import count_step
from viewkit.pipelines.training.loop import CHECKPOINT, train
from viewkit.pipelines.training.optimisers import create_optimiser, decay_all
from viewkit.pipelines.training.prepare import Optimisation, Training, prepare_training, schedule_of
from viewkit.pipelines.training.presets import settled_precision, settled_preset
from viewkit.pipelines.training.schedules import fitted_momentum
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.weights.folder import sha256_of
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError
from viewkit.shards.files import read_file, write_atomic
from viewkit.shards.loader import Loader
from viewkit.shards.spans import spanned

ROWS_AT_ONCE = range(32, 65)
"""Images whose views may pass a frozen trunk together."""
OF_A_TRUNK = ("trunk_images", "trunk_views")
"""Options that only a frozen trunk reads."""


def changed_options(config: EstimatorConfig) -> dict[str, Any]:
    """The options that differ from their defaults."""
    values = ((field.name, getattr(config, field.name), field.default) for field in fields(config))
    return {name: value for name, value, default in values if value != default}


class EstimatorStage(FitStage[EstimatorConfig]):
    """Writes `estimator.safetensors` (base encoder: backbone, projector, exits; no predictor, no momentum encoder) and
    `estimator.json` (what the weights are, and the views they take)."""

    name: ClassVar[str] = "estimator"
    version: ClassVar[int] = 2
    resumes: ClassVar[bool] = True
    trains: ClassVar[bool] = True
    distributed: ClassVar[bool] = True
    logs: ClassVar[tuple[str, ...]] = ("metrics.jsonl", "tensorboard")
    scratch: ClassVar[tuple[str, ...]] = (str(Path(CHECKPOINT).parent),)
    shown_as: ClassVar[str] = "estimator"
    holds: ClassVar[Mapping[str, str]] = {
        "estimator.safetensors": "base encoder: backbone, projector, one exit a block",
        "estimator.json": "what the weights are and the views they take: side in px, mean, std; tau, exits",
        "metrics.jsonl": "a line every few steps: losses, learning rate, spread and rank of the features, images/s",
    }

    def __init__(self, trunk_weights: Path | None = None, from_dataset: Path | None = None) -> None:
        """trunk_weights: file of a frozen trunk. from_dataset: whose estimator is taken as it is, in place of training.

        VS-2FI scores the images of COCO with the estimator of ImageNet-1K (sec. 4.1).
        """
        self.trunk_weights = trunk_weights
        self.other = None if from_dataset is None else Dataset(from_dataset)

    @property
    def writes(self) -> str:
        return "estimator"

    def reads(self, config: EstimatorConfig) -> tuple[str, ...]:
        is_run = config.trunk is not None and config.trunk.startswith("runs/")
        return ("images", str(config.trunk)) if is_run else ("images",)

    def check(self, config: EstimatorConfig) -> None:
        """No option is given without effect: all of them where a whole estimator is taken, trunk_* without a trunk."""
        if self.other is not None:
            given = {"trunk_weights": self.trunk_weights, **changed_options(config)}
            for name, value in given.items():
                if value is not None:
                    raise ConfigError(
                        f"{name} is {value} and --from-dataset takes a whole estimator, which is not trained; leave "
                        "one out"
                    )
        check_trunk(config.trunk, self.trunk_weights)
        if config.trunk is not None and config.policy is not None:  # those of the presets have one side
            check_one_side(load_policy(config.policy))
        if config.trunk is None:
            for name, value in changed_options(config).items():
                if name in OF_A_TRUNK:
                    raise ConfigError(f"{name} is {value}: it needs --trunk; leave it out")

    def for_images(self, config: EstimatorConfig, dataset: Dataset, device: str) -> EstimatorConfig:
        """Precision and preset "auto" decided: those of the estimator that is there or was begun, else what fits."""
        if self.other is not None:
            return config
        config = replace(config, precision=settled_precision(config.precision, dataset, self.writes, device))
        if config.preset != "auto":
            return config
        settled = settled_preset(dataset, self.writes, PRESETS)
        return replace(config, preset=settled or choose_preset(config, situation_of(dataset, device))[0])

    def advice(self, config: EstimatorConfig, dataset: Dataset, device: str) -> list[str]:
        if config.preset != "auto" or self.other is not None or dataset.is_artifact(self.writes):
            return []
        return [choose_preset(config, situation_of(dataset, device))[1]] if dataset.is_column("images") else []

    def settings(self, config: EstimatorConfig) -> dict[str, Any]:
        """A frozen trunk decides arch and, where it is not given, the side; without one its options say nothing."""
        if self.other is not None:
            return {}  # no option changes an estimator that is taken as it is
        values = resolve(config).values()
        if config.pairs == "random":
            del values["pairs"]
        if config.trunk is None:
            return {name: value for name, value in values.items() if name not in OF_A_TRUNK}
        return {**values, "arch": None, "side_px": config.side_px}

    def inputs(self, config: EstimatorConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also what the policy says, since a TOML file can change under the same name, and what the trunk's file is."""
        if self.other is not None:
            taken = self.other.input_digest("estimator", for_stage=self.name)
            return {**super().inputs(config, dataset), "other_estimator": taken}
        policy = digest(load_policy(resolve(config).policy).to_dict())
        trunk = {} if self.trunk_weights is None else {"trunk_weights": sha256_of(self.trunk_weights)}
        return {**super().inputs(config, dataset), "policy": policy, **trunk}

    def fit(self, config: EstimatorConfig, run: Run) -> Mapping[str, Any]:
        if self.other is not None:
            return take(self.other, run)
        settings = resolve(config)
        if settings.trunk is not None:
            return self.fit_heads(config, settings, run)
        training = prepare(settings, run)
        last = train(
            training.framework,
            training.optimiser,
            training.source,
            training.schedule,
            run,
            {"stage": self.name, **settings.values()},
            monitoring=training.monitoring,
        )
        steps, policy = training.schedule.steps, training.source.policy
        numbers: dict[str, Any] = {}
        if is_main():
            numbers = save(run, settings, training.framework, policy, steps, last)
            numbers |= training.probe(training.framework)
        cost = count_step(training.framework, training.optimiser, training.source, training.schedule, run.device)
        return {**numbers, **cost} if is_main() else {}

    def fit_heads(self, config: EstimatorConfig, settings: EstimatorSettings, run: Run) -> Mapping[str, Any]:
        """On a frozen trunk: encode its views once, then train projector and exits on what it gave."""
        if world_size() > 1:
            raise ConfigError("a frozen trunk needs one process alone; start 'viewkit estimator' without torchrun")
        assert settings.trunk is not None
        trunk = open_trunk(settings.trunk, run.dataset, self.trunk_weights, config.side_px)
        trunk.backbone.to(run.device)
        settings = replace(settings, arch=trunk.arch, init=trunk.init, num_heads=trunk.num_heads, side_px=trunk.side_px)
        policy = replace(load_policy(settings.policy).with_side(trunk.side_px), mean=trunk.mean, std=trunk.std)
        rows = run.dataset.column("images").num_rows
        views = RandomViews(policy, seed=settings.seed, stage=run.stage, num_views=settings.trunk_views)
        loader = create_loader(run, batch_at_once(rows), settings.seed)
        taps = encode_once(trunk.backbone, PairSource(loader, views, policy, run.device), settings.trunk_images, run)
        settings = replace(settings, batch_size=min(settings.batch_size, taps.num_images))
        schedule = schedule_of(settings, optimisation_of(settings), taps.num_images // settings.batch_size)
        framework = create_exit_moco_v3(settings, schedule.steps, trunk.backbone.cpu()).to(run.device)
        framework.network.backbone.requires_grad_(False)
        optimisation = optimisation_of(settings)
        groups = framework.groups(optimisation.weight_decay)
        if optimisation.decay_all:
            groups = decay_all(groups, optimisation.weight_decay)
        optimiser = create_optimiser(optimisation.optimiser, groups)
        last = train_heads(framework, optimiser, taps, schedule, settings.batch_size, run)
        return save(run, settings, framework, policy, schedule.steps, last)

    def plan(self, config: EstimatorConfig, run: Run) -> Mapping[str, Any]:
        if self.other is not None:
            return {"taken_from": str(self.other.path)}
        settings = resolve(config)
        if settings.trunk is not None:
            rows = run.dataset.column("images").num_rows
            rows = min(rows - rows % batch_at_once(rows), settings.trunk_images)
            return {"rows": rows, "views_encoded": rows * settings.trunk_views}
        return prepare(settings, run).plan(run.device)


def batch_at_once(rows: int) -> int:
    """Rows that pass a frozen trunk together: of `ROWS_AT_ONCE` what leaves the fewest of them over, for a last batch
    that is not full is left out."""
    if rows <= ROWS_AT_ONCE[-1]:
        return rows
    return min(reversed(ROWS_AT_ONCE), key=lambda size: rows % size)


def check_one_side(policy: Policy) -> None:
    """`ConfigError` for crops of several sides: views pass a frozen trunk in one batch."""
    sides = dict.fromkeys(spec.side_px or policy.side_px for spec in policy.views)
    if len(sides) > 1:
        raise ConfigError(
            f"policy is '{policy.name}', whose views are of several sides; a frozen trunk takes views of one, e.g. "
            "--policy moco_v3"
        )


@spanned("prepare")
def prepare(settings: EstimatorSettings, run: Run) -> Training[ExitMoCoV3]:
    """Raises before any work where a setting does not fit the data."""
    policy = load_policy(settings.policy).with_side(settings.side_px)
    loader = create_loader(run, share_of_batch(settings.batch_size), settings.seed)
    source = PairSource(loader, create_pairs(settings, policy, run.stage), policy, run.device)
    return prepare_training(
        run, source, settings, optimisation_of(settings), lambda steps: create_exit_moco_v3(settings, steps)
    )


def create_pairs(settings: EstimatorSettings, policy: Policy, stage: str) -> RecipeSampler:
    """What the estimator learns from: random pairs, or pairs whose crops share area."""
    if settings.pairs == "random":
        return RandomPairs(policy, seed=settings.seed, stage=stage)
    return OverlappingPairs(RandomViews(policy, seed=settings.seed, stage=stage, num_views=CANDIDATES))


def optimisation_of(settings: EstimatorSettings) -> Optimisation:
    """MoCo v3's for this kind of backbone, as in a run: "the same hyperparameters" for optimisation (sec. 4.1)."""
    decay = card_of("moco_v3").recipe(kind_of(settings.arch)).decay_all
    return Optimisation(optimiser="adamw", weight_decay=settings.weight_decay, decay_all=decay)


def create_loader(run: Run, batch_size: int, seed: int) -> Loader[Sample]:
    return Loader(
        run.dataset,
        ("images",),
        batch_size=batch_size,
        seed=seed,
        transform=SampleReader(),
        rank=rank(),
        world_size=world_size(),
    )


def create_exit_moco_v3(settings: EstimatorSettings, steps: int, trunk: Backbone | None = None) -> ExitMoCoV3:
    """The framework and its network. steps: of the whole training. trunk: whose weights the backbone takes."""
    network = EstimatorNetwork(
        settings.arch,
        settings.side_px,
        init=settings.init,
        num_heads=settings.num_heads,
        hidden=settings.hidden,
        dim=settings.dim,
        seed=settings.seed,
    )
    if trunk is not None:
        network.backbone.load_state_dict(trunk.state_dict())
    momentum = settings.momentum
    if settings.fit_momentum:
        momentum = fitted_momentum(steps=steps, start=momentum, rising=True)
    return ExitMoCoV3(
        network,
        hidden=settings.hidden,
        dim=settings.dim,
        tau=settings.tau,
        momentum=momentum,
        steps=steps,
        seed=settings.seed,
    )


def take(other: Dataset, run: Run) -> dict[str, Any]:
    """Copy the estimator of another dataset; returns what it says of itself."""
    if is_main():
        artifact = other.artifact("estimator")
        for name in (WEIGHTS, FACTS):
            write_atomic(run.folder / name, read_file(artifact.path(name)))
    return dict(other.artifact("estimator").numbers)


def save(
    run: Run,
    settings: EstimatorSettings,
    framework: ExitMoCoV3,
    policy: Policy,
    steps: int,
    last: Mapping[str, float | int],
) -> dict[str, Any]:
    """Write both files; returns the numbers worth showing, of the last line of metrics."""
    save_tensors(run.folder / WEIGHTS, framework.network.state_dict())
    facts = facts_of(settings, framework, policy, steps)
    write_atomic(run.folder / FACTS, json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n")
    exits = [last[f"loss_exit_{level}"] for level in range(1, framework.encoder.num_exits + 1)]
    return {"steps": steps, "loss": last["loss_top"], "exit_losses": exits, "spread": last["spread"]}


def facts_of(settings: EstimatorSettings, framework: ExitMoCoV3, policy: Policy, steps: int) -> dict[str, Any]:
    """What stands in `estimator.json`."""
    decided = {field.name: getattr(settings, field.name) for field in fields(Preset)}
    return {
        **decided,
        "policy": settings.values()["policy"],
        "init": settings.init,
        "num_heads": settings.num_heads,
        "encoder": "base",
        "num_exits": framework.encoder.num_exits,
        "mean": list(policy.mean),
        "std": list(policy.std),
        "seed": settings.seed,
        "steps": steps,
        "momentum": framework.momentum,
        "pairs": settings.pairs,
        "trunk": settings.trunk,
    }
