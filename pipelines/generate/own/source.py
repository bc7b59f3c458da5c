"""Batches of noised images, and of the noised embeddings that say what they show."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine, with_level_code
from viewkit.pipelines.generate.own.network import image_process
from viewkit.pipelines.generate.own.shuffled import ShuffledImages
from viewkit.pipelines.pairs.source import ViewBatch

P_DROPPED = 0.1
"""Share of the conditions that are replaced by zeros, for guidance (Ho & Salimans 2022)."""
P_FLIPPED = 0.5
NUM_LEVELS = 1000


class Draws(NamedTuple):
    """All that is drawn for a batch. level: of the noise on embeddings. time, noise: of that on pixels or latents."""

    flipped: Bool[np.ndarray, " n"]
    dropped: Bool[np.ndarray, " n"]
    level: Int64[np.ndarray, " n"]
    time: Int64[np.ndarray, " n"]
    embedding_noise: Float32[np.ndarray, "n d"]
    noise: Float32[np.ndarray, "n c h w"]

    def rows(self, part: slice) -> "Draws":
        return Draws(*(values[part] for values in self))


def sample_draws(generator: np.random.Generator, rows: int, width: int, shape: tuple[int, int, int]) -> Draws:
    """Levels and times are uniform over 0 ... 999. width: d, of the embedding. shape: (c, h, w)."""
    return Draws(
        flipped=generator.random(rows) < P_FLIPPED,
        dropped=generator.random(rows) < P_DROPPED,
        level=generator.integers(0, NUM_LEVELS, rows),
        time=generator.integers(0, NUM_LEVELS, rows),
        embedding_noise=generator.standard_normal((rows, width), dtype=np.float32),
        noise=generator.standard_normal((rows, *shape), dtype=np.float32),
    )


@dataclass(frozen=True)
class Noiser:
    """Turns images and draws into what the network learns from. space: in which embeddings are noised."""

    space: NoiseSpace

    def batch(self, images: Float[Tensor, "n c h w"], embedding: Float[Tensor, "n d"], draws: Draws) -> ViewBatch:
        """views: the noised images, and the velocity that the network should find in them. targets: time and
        condition, the noised embedding with its level's code, zeros where it is dropped. All times weigh the same: a
        weight by signal-to-noise would fade out the times of much noise, in which the condition decides.

        images: as `Prepared.learnt` has them. One may be mirrored beside an embedding of the image as it is: the two
        show the same.
        """
        dropped = torch.from_numpy(draws.dropped)
        level, time = torch.from_numpy(draws.level), torch.from_numpy(draws.time)
        noise = torch.from_numpy(draws.noise)
        noised = self._process.add_noise(images, noise, time)
        velocity = self._process.get_velocity(images, noise, time)
        z = self.space.noised(embedding, level, torch.from_numpy(draws.embedding_noise))
        condition = with_level_code(z, level).masked_fill(dropped[:, None], 0.0)
        return ViewBatch((noised, velocity), None, {}, 0.0, 0.0, targets=((time, condition),))

    @cached_property
    def _process(self) -> Any:
        return image_process()


@dataclass(frozen=True)
class NoisedImages(ShuffledImages):
    """Noised images, and what the network should find in them."""

    def batch(self, places: Int64[np.ndarray, " n"], own: slice, generator: np.random.Generator) -> ViewBatch:
        draws = sample_draws(generator, len(places), self.prepared.width, self.prepared.shape).rows(own)
        images = self.prepared.learnt(places[own], draws.flipped)
        embedding = torch.from_numpy(self.prepared.embeddings[places[own]])
        return self._noiser.batch(images, embedding, draws)

    @cached_property
    def _noiser(self) -> Noiser:
        return Noiser(NoiseSpace(self.prepared.mean, self.prepared.std, squared_cosine()))
