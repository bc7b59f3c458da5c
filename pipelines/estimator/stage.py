"""`viewkit estimator`: train it, and write it for every stage that scores with it."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

from viewkit.pipelines.distributed import is_main, rank, share_of_batch, world_size
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.estimator.config import EstimatorConfig, EstimatorSettings, Preset, resolve
from viewkit.pipelines.estimator.model import ExitMoCoV3
from viewkit.pipelines.frameworks.table import card_of
from viewkit.pipelines.models.architectures import kind_of
from viewkit.pipelines.models.checkpoint import save_tensors
from viewkit.pipelines.models.estimator import FACTS, WEIGHTS, EstimatorNetwork
from viewkit.pipelines.pairs.random import RandomPairs
from viewkit.pipelines.pairs.samples import SampleReader
from viewkit.pipelines.pairs.source import PairSource
from viewkit.pipelines.training.loop import CHECKPOINT, train
from viewkit.pipelines.training.prepare import Optimisation, Training, prepare_training
from viewkit.pipelines.training.schedules import fitted_momentum
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.files import write_atomic
from viewkit.shards.loader import Loader


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

    @property
    def writes(self) -> str:
        return "estimator"

    def reads(self, config: EstimatorConfig) -> tuple[str, ...]:
        return ("images",)

    def settings(self, config: EstimatorConfig) -> dict[str, Any]:
        return resolve(config).values()

    def inputs(self, config: EstimatorConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also what the policy says: a TOML file can change under the same name."""
        return {**super().inputs(config, dataset), "policy": digest(load_policy(resolve(config).policy).to_dict())}

    def fit(self, config: EstimatorConfig, run: Run) -> Mapping[str, Any]:
        settings = resolve(config)
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
        if not is_main():
            return {}
        framework = training.framework
        save_tensors(run.folder / WEIGHTS, framework.network.state_dict())
        facts = facts_of(settings, training)
        write_atomic(run.folder / FACTS, json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n")
        exits = [last[f"loss_exit_{level}"] for level in range(1, framework.encoder.num_exits + 1)]
        numbers: dict[str, Any] = {
            "steps": training.schedule.steps,
            "loss": last["loss_top"],
            "exit_losses": exits,
            "spread": last["spread"],
        }
        return {**numbers, **training.probe(framework)}

    def plan(self, config: EstimatorConfig, run: Run) -> Mapping[str, Any]:
        return prepare(resolve(config), run).plan(run.device)


def prepare(settings: EstimatorSettings, run: Run) -> Training[ExitMoCoV3]:
    """Raises before any work where a setting does not fit the data."""
    policy = load_policy(settings.policy).with_side(settings.side_px)
    loader = Loader(
        run.dataset,
        ("images",),
        batch_size=share_of_batch(settings.batch_size),
        seed=settings.seed,
        transform=SampleReader(),
        rank=rank(),
        world_size=world_size(),
    )
    source = PairSource(loader, RandomPairs(policy, seed=settings.seed, stage=run.stage), policy, run.device)
    recipe = card_of("moco_v3").recipe(kind_of(settings.arch))  # the same optimisation (VS-2FI, sec. 4.1)
    optimisation = Optimisation(optimiser="adamw", weight_decay=settings.weight_decay, decay_all=recipe.decay_all)
    return prepare_training(run, source, settings, optimisation, lambda steps: create_exit_moco_v3(settings, steps))


def create_exit_moco_v3(settings: EstimatorSettings, steps: int) -> ExitMoCoV3:
    """The framework and its network. steps: of the whole training."""
    network = EstimatorNetwork(
        settings.arch,
        settings.side_px,
        init=settings.init,
        num_heads=settings.num_heads,
        hidden=settings.hidden,
        dim=settings.dim,
        seed=settings.seed,
    )
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


def facts_of(settings: EstimatorSettings, training: Training[ExitMoCoV3]) -> dict[str, Any]:
    """What stands in `estimator.json`."""
    decided = {field.name: getattr(settings, field.name) for field in fields(Preset)}
    return {
        **decided,
        "policy": settings.values()["policy"],
        "init": settings.init,
        "num_heads": settings.num_heads,
        "encoder": "base",
        "num_exits": training.framework.encoder.num_exits,
        "mean": list(training.source.policy.mean),
        "std": list(training.source.policy.std),
        "seed": settings.seed,
        "steps": training.schedule.steps,
        "momentum": training.framework.momentum,
    }
