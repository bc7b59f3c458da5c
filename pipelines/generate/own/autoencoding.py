"""Training the autoencoder of a generator of one's own, on crops of the images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from viewkit.pipelines.distributed import world_size
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.generate.own.autoencoder import create_autoencoder
from viewkit.pipelines.generate.own.config import GeneratorSettings
from viewkit.pipelines.generate.own.prepared import Prepared, to_floats
from viewkit.pipelines.generate.own.shuffled import ShuffledImages
from viewkit.pipelines.models.backbone import Encoded
from viewkit.pipelines.pairs.source import ViewBatch
from viewkit.pipelines.training.cost import count_step
from viewkit.pipelines.training.loop import TrainingFiles, train
from viewkit.pipelines.training.metrics import AUTOENCODER_METRICS
from viewkit.pipelines.training.optimisers import create_optimiser
from viewkit.pipelines.training.schedules import Schedule, decided
from viewkit.pipelines.training.trainable import Trainable
from viewkit.shards.errors import ConfigError

FILES = TrainingFiles("checkpoint/autoencoder.safetensors", AUTOENCODER_METRICS)
CROP_PX = 64
"""Side of the crops: it has no attention, so it learns from these what it then does to whole images."""
BATCH = 16
PEAK_LR = 1e-3
WARMUP_SHARE = 0.05
WEIGHT_DECAY = 0.01
KL_WEIGHT = 1e-6
"""Of the latents' divergence from a standard normal distribution, beside the mean error (Rombach et al. 2022)."""
LONGEST_GRADIENT = 1.0


class AutoencoderTraining(Trainable):
    """autoencoder: learns to give back the crops, from latents with the noise of its own variance."""

    slower: ClassVar[str] = "name a trained one by --autoencoder"

    def __init__(self, autoencoder: Any) -> None:
        super().__init__()
        self.autoencoder = autoencoder

    def loss(
        self,
        views: Sequence[Tensor],
        weights: Float[Tensor, " n"] | None = None,
        targets: Sequence[Encoded | None] | None = None,
    ) -> Float[Tensor, ""]:
        """Mean absolute error of pixels -1 ... 1, and `KL_WEIGHT` of the divergence per crop. views: crops, noise."""
        crops, noise = views
        latents = self.autoencoder.encode(crops).latent_dist
        decoded = self.autoencoder.decode(latents.mean + latents.std * noise, return_dict=False)[0]
        return (decoded.float() - crops).abs().mean() + KL_WEIGHT * latents.kl().float().mean()

    def before_update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.autoencoder.parameters(), LONGEST_GRADIENT)


@dataclass(frozen=True, kw_only=True)
class Crops(ShuffledImages):
    """Crops of the images, half of them mirrored, and the noise of their latents. latents: (c, h, w) of a crop's."""

    latents: tuple[int, int, int]

    def batch(self, places: Int64[np.ndarray, " n"], own: slice, generator: np.random.Generator) -> ViewBatch:
        n, side = len(places), self.prepared.pixels.shape[1]
        crop = min(CROP_PX, side)
        tops, lefts = generator.integers(0, side - crop + 1, (2, n))
        mirrored = generator.random(n) < 0.5
        noise = generator.standard_normal((n, *self.latents), dtype=np.float32)
        crops = np.stack([
            self.prepared.pixels[place, top : top + crop, left : left + crop][:, :: -1 if mirror else 1]
            for place, top, left, mirror in zip(places[own], tops[own], lefts[own], mirrored[own], strict=True)
        ])  # fmt: skip
        return ViewBatch((to_floats(crops), torch.from_numpy(noise[own])), None, {}, 0.0, 0.0)


def batch_of(images: int) -> int:
    """Crops of a batch: `BATCH` or a little more, so that all processes have as many, and at most one an image."""
    processes = world_size()
    batch = min(-(-BATCH // processes), images // processes) * processes
    if not batch:
        raise ConfigError(f"{images} images are trained on by {processes} processes; start fewer processes")
    return batch


def prepare_autoencoding(
    settings: GeneratorSettings, prepared: Prepared, run: Run
) -> tuple[AutoencoderTraining, torch.optim.Optimizer, Crops, Schedule]:
    """Everything the loop needs."""
    batch = batch_of(len(prepared.train))
    autoencoding = AutoencoderTraining(create_autoencoder(settings))
    autoencoding.to(device=run.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    config = autoencoding.autoencoder.config
    side = min(CROP_PX, settings.side_px) // 2 ** (len(config.block_out_channels) - 1)
    source = Crops(
        prepared=prepared,
        run=run,
        batch_size=batch,
        streams=("autoencoder order", "autoencoder"),
        latents=(config.latent_channels, side, side),
    )
    schedule = Schedule(
        steps=settings.autoencoder_steps,
        warmup_steps=int(WARMUP_SHARE * settings.autoencoder_steps),
        peak_lr=PEAK_LR,
        seed=settings.seed,
        precision=decided(settings.precision),
    )
    optimiser = create_optimiser("adamw", autoencoding.groups(WEIGHT_DECAY))
    return autoencoding, optimiser, source, schedule


def counted_training(settings: GeneratorSettings, prepared: Prepared, run: Run) -> dict[str, float]:
    """``autoencoder_flops`` of the whole training, counted on one step of a fresh one, and its ``autoencoder_batch``;
    empty where a GPU has too little memory to count."""
    autoencoding, optimiser, source, schedule = prepare_autoencoding(settings, prepared, run)
    counted = count_step(autoencoding, optimiser, source, schedule, run.device)
    if "step_flops" not in counted:
        return {}
    return {
        "autoencoder_flops": schedule.steps * counted["step_flops"],
        "autoencoder_batch": source.batch_size,
    }


def train_autoencoder(settings: GeneratorSettings, prepared: Prepared, run: Run) -> Any:
    """On all processes; from its checkpoint if there is one. Returns it in evaluation mode."""
    autoencoding, optimiser, source, schedule = prepare_autoencoding(settings, prepared, run)
    named = replace(run, stage=f"{run.stage}: autoencoder")
    owner = {"stage": named.stage, **settings.values()}
    train(autoencoding, optimiser, source, schedule, named, owner, files=FILES)
    return autoencoding.autoencoder.eval().requires_grad_(False)
