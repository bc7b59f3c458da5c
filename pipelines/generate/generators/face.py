"""What every generator of views can do. Adding one is one file here and one line in `config.GENERATORS`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.encoders import Encoder
from viewkit.pipelines.generate.foreground import Foreground
from viewkit.pipelines.stage import Run


@dataclass(frozen=True)
class Generated:
    """fields: the one encoded image, by extension. facts: JSON values for the row's KEY.json, e.g. the neighbour."""

    fields: Mapping[str, bytes]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Failed:
    """reason: ``non_finite`` or ``near_constant``; drawn again with another seed, in the end the row's reject."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Setup:
    """What a generator is made from. encoder: of the foreground; share it where it is the one that conditions.

    weights: where its weights are, from ``--weights``. compiled: whether networks should be compiled (``--compile``).
    """

    config: GenerateConfig
    run: Run
    encoder: Encoder
    foreground: Foreground
    weights: Path | None = None
    compiled: bool = False


class Generator(ABC):
    """encoder: whose embedding it is conditioned on. latent_shape: of the second noise it needs, () for none.

    Draws nothing itself: all noise is handed in, fp32 from the CPU, so the device does not choose it. Rows do not
    depend on each other, and batches always have the same size.
    """

    name: ClassVar[str]
    dear: ClassVar[bool] = True
    """Whether a view costs so much that those of a cut shard are kept (see `viewkit.shards.spool`)."""
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
        return self.encoder.tokens_and_embedding(images)[1]

    @abstractmethod
    def perturb(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n k"]:
        """What `sample` is conditioned on. level: one for every row, 0 ... 999 on unCLIP's scale, more is freer."""

    @abstractmethod
    def sample(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n ..."], keys: Sequence[str]
    ) -> list[Generated | Failed]:
        """One view a row. latents: standard normal, `latent_shape`. keys: of the source images."""

    def in_fp32(self) -> "Generator | None":
        """The same generator in fp32, for rows that fail in half precision; None where it runs in fp32 already."""
        return None

    @abstractmethod
    def fingerprint(self) -> Mapping[str, Any]:
        """JSON values that differ whenever the same noise would give another view."""
