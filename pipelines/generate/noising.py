"""Noise on image embeddings: the forward process of unCLIP, with a level for every row."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.shards.errors import ConfigError


def squared_cosine(num_levels: int = 1000) -> Float[Tensor, " l"]:
    """Signal variance abar of every level: squared cosine with betas capped at 0.999 (Nichol & Dhariwal 2021, eq. 17).

    The schedule of the published unCLIP weights; a generator whose checkpoint holds a schedule takes that one.
    """
    t = torch.arange(num_levels + 1, dtype=torch.float64) / num_levels
    f = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square()
    betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
    return (1 - betas).cumprod(dim=0).float()


def add_noise(
    z: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"], abar: Float[Tensor, " l"]
) -> Float[Tensor, "n d"]:
    """sqrt(abar) z + sqrt(1 - abar) noise. Level 0 is not free of noise: 1 - abar[0] is 4e-5.

    z: standardised embeddings. level: 0 ... l - 1.
    """
    signal = abar.to(z)[level].unsqueeze(1)
    return signal.sqrt() * z + (1 - signal).sqrt() * noise


def with_level_code(noised: Float[Tensor, "n d"], level: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
    """The noised embedding with a sinusoidal code of its level appended, k = 2 d, as unCLIP's networks take it."""
    from diffusers.models.embeddings import get_timestep_embedding

    level = level.to(noised.device)
    code = get_timestep_embedding(level, noised.shape[1], flip_sin_to_cos=True, downscale_freq_shift=0)
    return torch.cat([noised, code], dim=1)


@dataclass(frozen=True)
class NoiseSpace:
    """The space in which embeddings are noised: there they have mean 0 and deviation 1 in every feature.

    mean, std: of the embeddings, over a dataset or as the generator's checkpoint has them. abar: of every level.
    """

    mean: Float[Tensor, " d"]
    std: Float[Tensor, " d"]
    abar: Float[Tensor, " l"]

    def to(self, device: str) -> "NoiseSpace":
        return NoiseSpace(self.mean.to(device), self.std.to(device), self.abar.to(device))

    def noised(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n d"]:
        """The embeddings, standardised and noised. `ConfigError` for a level that the schedule does not have."""
        if int(level.min()) < 0 or int(level.max()) >= len(self.abar):
            raise ConfigError(f"noise levels must lie in 0 ... {len(self.abar) - 1}")
        z = (embedding.float().to(self.mean.device) - self.mean) / self.std
        return add_noise(z, level.to(z.device), noise.to(z), self.abar)

    def restored(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """From the standardised space back to that of the embeddings."""
        return z * self.std + self.mean
