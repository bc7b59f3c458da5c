"""Second moments of patch tokens, streamed image by image, whose sum does not depend on the order."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Num
from torch import Tensor

from viewkit.shards.errors import DataError

COARSE, FINE = 2.0**-8, 2.0**-40
"""Grids of the two accumulators. Sums of multiples of 2^-8 are exact in fp64 up to 2^45, and the rests, each at most
2^-9, add up exactly on the grid 2^-40 for 2^22 images: so no rounding happens and every order gives the same bits."""
LARGEST = 2.0**45
MAX_IMAGES = 2**22


@dataclass
class Moments:
    """Sum over images of x1ᵀ x1, where x1 is an image's tokens with a column of ones: products, sums and count at once.

    Tokens are multiplied in fp32 per image and added in fp64. `width` is k, the width of a token.
    """

    width: int

    def __post_init__(self) -> None:
        shape = (self.width + 1, self.width + 1)
        self.coarse = torch.zeros(shape, dtype=torch.float64)
        self.fine = torch.zeros(shape, dtype=torch.float64)
        self.images = 0

    def __getstate__(self) -> dict[str, Any]:
        """As arrays: tensors that travel between processes of a machine would be shared."""
        return {**vars(self), "coarse": self.coarse.numpy(), "fine": self.fine.numpy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, **{name: torch.from_numpy(np.array(state[name])) for name in ("coarse", "fine")})

    def add(self, tokens: Num[Tensor, "t k"]) -> None:
        """Take in one image. Raises `DataError` for tokens too large to be summed exactly."""
        x = tokens.float()
        x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        product = (x.mT @ x).cpu().double()
        coarse = torch.round(product / COARSE) * COARSE
        self.coarse += coarse
        self.fine += torch.round((product - coarse) / FINE) * FINE
        self.images += 1
        self._check()

    def merge(self, other: "Moments") -> None:
        """Take in what another worker has summed."""
        self.coarse += other.coarse
        self.fine += other.fine
        self.images += other.images
        self._check()

    def _check(self) -> None:
        largest = self.coarse.diagonal().max().item()
        if not largest < LARGEST or self.images > MAX_IMAGES:
            raise DataError(
                f"foreground: tokens too large to sum ({largest:.3g} after {self.images} images); "
                "lower --sample, or use an encoder whose tokens are normalised"
            )

    @property
    def tokens(self) -> int:
        return round(self.coarse[-1, -1].item())

    def total(self) -> Float64[Tensor, "k1 k1"]:
        """The sum, with k1 = k + 1."""
        return self.coarse + self.fine

    def mean(self) -> Float64[Tensor, " k"]:
        return self.total()[-1, :-1] / self.tokens

    def covariance(self) -> Float64[Tensor, "k k"]:
        """Covariance of the tokens, with n - 1."""
        mean = self.mean()
        return (self.total()[:-1, :-1] - self.tokens * torch.outer(mean, mean)) / (self.tokens - 1)
