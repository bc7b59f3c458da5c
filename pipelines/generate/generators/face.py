"""What every generator of views can do. Adding one is one file here and one line in `generators.table`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from viewkit.pipelines.generate.encoders import Encoder


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


class Generator(ABC):
    """encoder: whose embedding it is conditioned on. latent_shape: of the second noise it needs, () for none.

    Draws nothing itself: all noise is handed in, fp32 from the CPU, so the device does not choose it. Rows do not
    depend on each other, and batches always have the same size.
    """

    name: ClassVar[str]
    encoder: Encoder
    latent_shape: tuple[int, ...] = ()

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

    @abstractmethod
    def fingerprint(self) -> Mapping[str, Any]:
        """JSON values that differ whenever the same noise would give another view."""
