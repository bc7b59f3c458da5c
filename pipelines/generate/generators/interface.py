"""The interface of every generator of views. A new one is a file here and a line in `weights.cards.GENERATORS`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.weights.cards import GENERATORS, load


@dataclass(frozen=True)
class Generated:
    """content: the one encoded image, by extension, or the future of it: the next batch is sampled while this one's
    pictures are encoded. facts: JSON values for the row's KEY.json, e.g. the neighbour."""

    content: Mapping[str, bytes] | Future[Mapping[str, bytes]]
    facts: Mapping[str, Any]

    @property
    def fields(self) -> Mapping[str, bytes]:
        """The encoded image, by extension; waits for it."""
        return self.content.result() if isinstance(self.content, Future) else self.content


@dataclass(frozen=True)
class Failed:
    """reason: ``non_finite`` or ``near_constant``; sampled again with another seed, in the end the row's reject."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Setup:
    """What a generator is made from. encoder: of the foreground; share it where it is the one that conditions.

    weights: from ``--weights``. compiled: whether networks should be compiled (``--compile``).
    """

    config: GenerateConfig
    run: Run
    encoder: Encoder
    foreground: Foreground
    weights: Path | None = None
    compiled: bool = False


class Generator(ABC):
    """name: its key in `GENERATORS`. encoder: whose embedding it is conditioned on. latent_shape: of the second noise
    it needs, () for none.

    Samples no noise itself: all of it is passed in, fp32 from the CPU, so that it does not depend on the device. Rows
    do not depend on each other, and batches always have the same size.
    """

    name: ClassVar[str]
    encoder: Encoder
    latent_shape: tuple[int, ...] = ()

    @classmethod
    @abstractmethod
    def create(cls, setup: Setup) -> "Generator":
        """Load it. `DataError` for weights that are missing or not what they should be."""

    @classmethod
    def inputs(cls, config: GenerateConfig, weights: Path | None) -> Mapping[str, str]:
        """SHA-256 of every file it reads outside the dataset, by name; part of the column's identity."""
        return {}

    def condition(self, images: Sequence[Shaped[np.ndarray, "_ _ 3"]]) -> Float[Tensor, "n d"]:
        """Embedding of uint8 images; the stage skips this call when it has run the same encoder already."""
        return self.encoder.encode_images(images)[1]

    @abstractmethod
    def perturb(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n k"]:
        """What `sample` is conditioned on. level: of each row, 0 ... 999 on unCLIP's scale, more is noisier."""

    @abstractmethod
    def sample(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n ..."], keys: Sequence[str]
    ) -> list[Generated | Failed]:
        """One view per row. latents: standard normal, `latent_shape`. keys: of the source images."""

    def in_fp32(self) -> "Generator | None":
        """The same generator in fp32, for rows that fail in half precision; None where it runs in fp32 already."""
        return None


def generator_class(name: str) -> type[Generator]:
    """The class that a generator's card names; only its own module is imported."""
    found: type[Generator] = load(GENERATORS[name].made_by)
    return found
