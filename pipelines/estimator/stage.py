"""`viewkit estimator`: train it, and write it down for every stage that looks through it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch.optim import Optimizer

from viewkit.pipelines.distributed import is_main, rank, share_of_batch, world_size
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.model import ExitMoCoV3
from viewkit.pipelines.models.checkpoint import save_tensors
from viewkit.pipelines.models.estimator import FACTS, WEIGHTS, EstimatorNetwork
from viewkit.pipelines.models.shared_norm import share_norms
from viewkit.pipelines.stage import FitStage, Run
from viewkit.pipelines.training.duration import count_steps
from viewkit.pipelines.training.loop import CHECKPOINT, Probe, Schedule, Watching, time_steps, train
from viewkit.pipelines.training.optimisers import create_optimiser
from viewkit.pipelines.training.pairs import PairSource, RandomPairs
from viewkit.pipelines.training.probes import KnnProbe
from viewkit.pipelines.training.samples import SampleReader
from viewkit.pipelines.training.step import check_micro_batch, compile_backbones
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.files import write_whole
from viewkit.shards.loader import Loader


class EstimatorStage(FitStage[EstimatorConfig]):
    """Writes `estimator.safetensors` (base encoder: backbone, projector, exits; no predictor, no momentum encoder) and
    `estimator.json` (what the weights are, and what their views must look like)."""

    name: ClassVar[str] = "estimator"
    resumes: ClassVar[bool] = True
    distributed: ClassVar[bool] = True
    logs: ClassVar[tuple[str, ...]] = ("metrics.jsonl", "tensorboard")
    scratch: ClassVar[tuple[str, ...]] = (str(Path(CHECKPOINT).parent),)
    shown_as: ClassVar[str] = "estimator"
    holds: ClassVar[Mapping[str, str]] = {
        "estimator.safetensors": "base encoder: backbone, projector, one exit a block",
        "estimator.json": "what the weights are and how their views must look: side in px, mean, std, tau, exits",
        "metrics.jsonl": "a line every few steps: losses, learning rate, spread and rank of the features, images/s",
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
        training = _prepare(config, run)
        owner = {"stage": self.name, **self.settings(config)}
        last = train(
            training.framework,
            training.optimiser,
            training.source,
            training.schedule,
            run,
            owner,
            watching=training.watching,
        )
        if not is_main():
            return {}
        framework = training.framework
        facts = self._facts(config, training)
        save_tensors(run.folder / WEIGHTS, framework.network.state_dict())
        write_whole(run.folder / FACTS, json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n")
        exits = [last[f"loss_exit_{level}"] for level in range(1, framework.encoder.num_exits + 1)]
        numbers: dict[str, Any] = {
            "steps": training.schedule.steps,
            "loss": last["loss_top"],
            "exit_losses": exits,
            "spread": last["spread"],
        }
        return {**numbers, **training.probe(framework)}

    def _facts(self, config: EstimatorConfig, training: "Training") -> dict[str, Any]:
        """What stands in `estimator.json`."""
        return {
            **asdict(config.settings),
            "policy": self.settings(config)["policy"],
            "start": config.start,
            "num_heads": config.num_heads,
            "encoder": "base",
            "num_exits": training.framework.encoder.num_exits,
            "mean": list(training.source.policy.mean),
            "std": list(training.source.policy.std),
            "seed": config.seed,
            "steps": training.schedule.steps,
        }

    def plan(self, config: EstimatorConfig, run: Run) -> Mapping[str, Any]:
        training = _prepare(config, run)
        schedule = training.schedule
        step_s = time_steps(training.framework, training.optimiser, training.source, schedule, run.device)
        return {
            "rows": training.source.loader.num_rows,
            "steps": schedule.steps,
            "step_s": round(step_s, 4),
            "estimated_s": round(step_s * schedule.steps, 1),
        }


@dataclass(frozen=True)
class Training:
    """Everything the loop needs."""

    framework: ExitMoCoV3
    optimiser: Optimizer
    source: PairSource
    schedule: Schedule
    watching: Watching
    probe: Probe


def _prepare(config: EstimatorConfig, run: Run) -> Training:
    """Raises before any work where an option does not fit the data."""
    s = config.settings
    reader = SampleReader()
    policy = load_policy(s.policy).with_side(s.side_px)
    loader = Loader(
        run.dataset,
        ("images",),
        batch_size=share_of_batch(s.batch_size),
        seed=config.seed,
        transform=reader,
        rank=rank(),
        world_size=world_size(),
    )
    source = PairSource(loader, RandomPairs(policy, seed=config.seed, stage=run.stage), policy, run.device)
    steps, warmup = count_steps(
        epochs=s.epochs, steps=config.steps, warmup_epochs=s.warmup_epochs, steps_per_epoch=source.steps_per_epoch
    )
    schedule = Schedule(
        steps=steps,
        warmup_steps=warmup,
        peak_lr=s.lr * s.batch_size / 256,
        precision=config.precision,
        micro_batch=config.micro_batch,
    )
    network = EstimatorNetwork(
        s.arch,
        s.side_px,
        start=config.start,
        num_heads=config.num_heads,
        hidden=s.hidden,
        dim=s.dim,
        seed=config.seed,
    )
    check_micro_batch(network.backbone, config.micro_batch, loader.batch_size)
    framework = ExitMoCoV3(
        network, hidden=s.hidden, dim=s.dim, tau=s.tau, momentum=s.momentum, steps=steps, seed=config.seed
    )
    share_norms(framework, run.device)
    framework = framework.to(run.device)
    probe = KnnProbe(run.dataset.column("images"), reader, policy, run.device)
    if config.knn_epochs is not None:
        probe.check("knn_epochs", config.knn_epochs)
    watching = Watching(
        probe=probe,
        probe_steps=None if config.knn_epochs is None else config.knn_epochs * source.steps_per_epoch,
        tensorboard=config.tensorboard,
    )
    optimiser = create_optimiser("adamw", framework.groups(s.weight_decay))
    if config.compile:
        compile_backbones(framework)
    return Training(framework, optimiser, source, schedule, watching, probe)
