"""Batches of noised images, and of the noised embeddings that say what they show."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from viewkit.pipelines.distributed import rank, share_of_batch
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine, with_level_code
from viewkit.pipelines.generate.own.network import pixel_process
from viewkit.pipelines.generate.own.prepared import Prepared, to_floats
from viewkit.pipelines.pairs.source import ViewBatch

P_DROPPED = 0.1
"""Share of the conditions that are replaced by zeros, for guidance (Ho & Salimans 2022)."""
P_FLIPPED = 0.5
NUM_LEVELS = 1000


class Draws(NamedTuple):
    """All that is drawn for a batch. level: of the noise on embeddings. time: of the noise on pixels."""

    flipped: Bool[np.ndarray, " n"]
    dropped: Bool[np.ndarray, " n"]
    level: Int64[np.ndarray, " n"]
    time: Int64[np.ndarray, " n"]
    embedding_noise: Float32[np.ndarray, "n d"]
    pixel_noise: Float32[np.ndarray, "n 3 s s"]

    def rows(self, part: slice) -> "Draws":
        return Draws(*(values[part] for values in self))


def sample_draws(generator: np.random.Generator, rows: int, width: int, side_px: int) -> Draws:
    """Levels and times are uniform over 0 ... 999."""
    return Draws(
        flipped=generator.random(rows) < P_FLIPPED,
        dropped=generator.random(rows) < P_DROPPED,
        level=generator.integers(0, NUM_LEVELS, rows),
        time=generator.integers(0, NUM_LEVELS, rows),
        embedding_noise=generator.standard_normal((rows, width), dtype=np.float32),
        pixel_noise=generator.standard_normal((rows, 3, side_px, side_px), dtype=np.float32),
    )


@dataclass(frozen=True)
class Noiser:
    """Turns images and draws into what the network learns from. space: in which embeddings are noised."""

    space: NoiseSpace

    def batch(self, images: Float[Tensor, "n 3 s s"], embedding: Float[Tensor, "n d"], draws: Draws) -> ViewBatch:
        """views: the noised images, and the velocity that the network should find in them. targets: time and
        condition, the noised embedding with its level's code, zeros where it is dropped. All times weigh the same: a
        weight by signal-to-noise would fade out the times of much noise, in which the condition decides.

        An image may be mirrored beside an embedding of the image as it is: the two show the same.
        """
        flipped, dropped = torch.from_numpy(draws.flipped), torch.from_numpy(draws.dropped)
        level, time = torch.from_numpy(draws.level), torch.from_numpy(draws.time)
        images = torch.where(flipped[:, None, None, None], images.flip(-1), images)
        noise = torch.from_numpy(draws.pixel_noise)
        noised = self._process.add_noise(images, noise, time)
        velocity = self._process.get_velocity(images, noise, time)
        z = self.space.noised(embedding, level, torch.from_numpy(draws.embedding_noise))
        condition = with_level_code(z, level).masked_fill(dropped[:, None], 0.0)
        return ViewBatch((noised, velocity), None, {}, 0.0, 0.0, targets=((time, condition),))

    @cached_property
    def _process(self) -> Any:
        return pixel_process()


@dataclass(frozen=True)
class NoisedImages:
    """A `loop.Source`: epochs of shuffled images, the same whenever and from whichever step they are started.

    Every process draws for the whole batch and takes its own rows, so several train as one does. The next batch is
    made while the one before is trained on. batch_size: of all processes together.
    """

    prepared: Prepared
    run: Run
    batch_size: int

    @property
    def steps_per_epoch(self) -> int:
        return len(self.prepared.train) // self.batch_size

    def with_batches_of(self, rows: int) -> "NoisedImages":
        return replace(self, batch_size=rows)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[ViewBatch]:
        order = self.run.generator("order", epoch).permutation(self.prepared.train)

        def make(step: int) -> ViewBatch:
            rows = order[step * self.batch_size : (step + 1) * self.batch_size]
            return self._batch(rows, self.run.generator("noise", epoch, step))

        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(make, start_step)
            for step in range(start_step, self.steps_per_epoch):
                started = time.perf_counter()
                batch = pending.result()
                if step + 1 < self.steps_per_epoch:
                    pending = pool.submit(make, step + 1)
                yield on_device(batch, self.run.device, time.perf_counter() - started)

    def _batch(self, rows: Int64[np.ndarray, " n"], generator: np.random.Generator) -> ViewBatch:
        draws = sample_draws(generator, len(rows), self.prepared.width, self.prepared.side_px)
        share = share_of_batch(len(rows))
        own = slice(rank() * share, (rank() + 1) * share)
        images = to_floats(self.prepared.pixels[rows[own]])
        embedding = torch.from_numpy(self.prepared.embeddings[rows[own]])
        return self._noiser.batch(images, embedding, draws.rows(own))

    @cached_property
    def _noiser(self) -> Noiser:
        return Noiser(NoiseSpace(self.prepared.mean, self.prepared.std, squared_cosine()))


def on_device(batch: ViewBatch, device: str, wait_s: float = 0.0) -> ViewBatch:
    """The same on the device, images in the layout its convolutions are fastest with."""
    assert batch.targets is not None
    views = tuple(view.to(device, memory_format=torch.channels_last) for view in batch.views)
    targets = tuple(None if each is None else tuple(x.to(device) for x in each) for each in batch.targets)
    return replace(batch, views=views, targets=targets, wait_s=wait_s)
