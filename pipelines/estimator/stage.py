"""`viewkit estimator`: train it, and write it down for every stage that looks through it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from torch.optim import Optimizer

from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.model import ExitMoCoV3
from viewkit.pipelines.models.checkpoint import save_tensors
from viewkit.pipelines.models.estimator import FACTS, WEIGHTS, Estimator, EstimatorNetwork
from viewkit.pipelines.stage import FitStage, Run
from viewkit.pipelines.training.duration import count_steps
from viewkit.pipelines.training.features import labelled_features
from viewkit.pipelines.training.loop import CHECKPOINT, Schedule, time_steps, train
from viewkit.pipelines.training.optimisers import create_optimiser
from viewkit.pipelines.training.pairs import PairSource, RandomPairs
from viewkit.pipelines.training.probes import knn_predict, top1
from viewkit.pipelines.training.samples import SampleReader
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import Policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.files import write_whole
from viewkit.shards.loader import Loader

NEIGHBOURS = 20


class EstimatorStage(FitStage[EstimatorConfig]):
    """Writes `estimator.safetensors` (base encoder: backbone, projector, exits; no predictor, no momentum encoder) and
    `estimator.json` (what the weights are, and what their views must look like)."""

    name: ClassVar[str] = "estimator"
    resumes: ClassVar[bool] = True
    scratch: ClassVar[tuple[str, ...]] = (str(Path(CHECKPOINT).parent),)
    shown_as: ClassVar[str] = "estimator"
    holds: ClassVar[Mapping[str, str]] = {
        "estimator.safetensors": "base encoder: backbone, projector, one exit a block",
        "estimator.json": "what the weights are and how their views must look: side in px, mean, std, tau, exits",
        "metrics.jsonl": "a line every few steps: losses, learning rate, spread of the features, images/s",
    }

    @property
    def writes(self) -> str:
        return "estimator"

    def reads(self, config: EstimatorConfig) -> tuple[str, ...]:
        return ("images",)

    def inputs(self, config: EstimatorConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also what the policy says: a TOML file can change under the same name."""
        return {**super().inputs(config, dataset), "policy": digest(load_policy(config.settings.policy).to_dict())}

    def fit(self, config: EstimatorConfig, run: Run) -> Mapping[str, Any]:
        s = config.settings
        reader = SampleReader()
        source, schedule, framework, optimiser = _prepare(config, run, reader)
        last = train(framework, optimiser, source, schedule, run, {"stage": self.name, **self.settings(config)})
        facts = {
            **asdict(s),
            "policy": self.settings(config)["policy"],
            "start": config.start,
            "num_heads": config.num_heads,
            "encoder": "base",
            "num_exits": framework.encoder.num_exits,
            "mean": list(source.policy.mean),
            "std": list(source.policy.std),
            "seed": config.seed,
            "steps": schedule.steps,
        }
        save_tensors(run.folder / WEIGHTS, framework.network.state_dict())
        write_whole(run.folder / FACTS, json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n")
        exits = [last[f"loss_exit_{level}"] for level in range(1, framework.encoder.num_exits + 1)]
        numbers: dict[str, Any] = {
            "steps": schedule.steps,
            "loss": last["loss_top"],
            "exit_losses": exits,
            "spread": last["spread"],
        }
        knn = _probe(Estimator(framework.network, facts, run.device), run, reader, source.policy)
        if knn is not None:
            numbers["knn_top1"] = knn
        return numbers

    def plan(self, config: EstimatorConfig, run: Run) -> Mapping[str, Any]:
        source, schedule, framework, optimiser = _prepare(config, run, SampleReader())
        step_s = time_steps(framework, optimiser, source, schedule, run.device)
        return {
            "rows": source.loader.num_rows,
            "steps": schedule.steps,
            "step_s": round(step_s, 4),
            "estimated_s": round(step_s * schedule.steps, 1),
        }


def _prepare(
    config: EstimatorConfig, run: Run, reader: SampleReader
) -> tuple[PairSource, Schedule, ExitMoCoV3, Optimizer]:
    """Everything the loop needs; raises before any work where an option does not fit the data."""
    s = config.settings
    policy = load_policy(s.policy).with_side(s.side_px)
    loader = Loader(run.dataset, ("images",), batch_size=s.batch_size, seed=config.seed, transform=reader)
    source = PairSource(loader, RandomPairs(policy, seed=config.seed, stage=run.stage), policy, run.device)
    steps, warmup = count_steps(
        epochs=s.epochs, steps=config.steps, warmup_epochs=s.warmup_epochs, steps_per_epoch=source.steps_per_epoch
    )
    schedule = Schedule(steps=steps, warmup_steps=warmup, peak_lr=s.lr * s.batch_size / 256, precision=config.precision)
    network = EstimatorNetwork(
        s.arch,
        s.side_px,
        start=config.start,
        num_heads=config.num_heads,
        hidden=s.hidden,
        dim=s.dim,
        seed=config.seed,
    )
    framework = ExitMoCoV3(
        network, hidden=s.hidden, dim=s.dim, tau=s.tau, momentum=s.momentum, steps=steps, seed=config.seed
    ).to(run.device)
    optimiser = create_optimiser("adamw", framework.groups(s.weight_decay))
    return source, schedule, framework, optimiser


def _probe(estimator: Estimator, run: Run, reader: SampleReader, policy: Policy) -> float | None:
    """Top-1 of the kNN probe on the training images, each one left out of its own vote; None without labels."""
    labelled = labelled_features(
        estimator.features,
        run.dataset.column("images"),
        reader,
        side_px=policy.side_px,
        mean=policy.mean,
        std=policy.std,
        device=run.device,
    )
    if labelled is None:
        return None
    features, labels = labelled
    return top1(knn_predict(features, labels, features, k=NEIGHBOURS, leave_one_out=True), labels)
