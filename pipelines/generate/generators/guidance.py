"""Classifier-free guidance: how much of it, during which steps, and how far its outputs are brought back."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Guidance:
    """scale: 1 means none. start, stop: shares of the steps between which it acts (Kynkäänniemi et al. 2024 guide in
    an interval of noise levels only). rescale: phi of Lin et al. 2024, 0 ... 1."""

    scale: float
    start: float = 0.0
    stop: float = 1.0
    rescale: float = 0.0

    def acts(self, step: int, steps: int) -> bool:
        """Whether step number `step` of `steps` runs the network on the unconditional half, too."""
        return self.scale > 1 and self.start * steps <= step < self.stop * steps

    def combine(
        self, free: Float[Tensor, "n c h w"], conditioned: Float[Tensor, "n c h w"]
    ) -> Float[Tensor, "n c h w"]:
        """free + scale (conditioned - free); then phi of it with the spread of `conditioned`, row by row.

        Lin et al. 2024, "Common diffusion noise schedules and sample steps are flawed", eq. 14-16.
        """
        guided = free + self.scale * (conditioned - free)
        if self.rescale == 0:
            return guided
        axes = tuple(range(1, guided.ndim))
        spread = conditioned.std(dim=axes, keepdim=True) / guided.std(dim=axes, keepdim=True)
        return guided * (self.rescale * spread + (1 - self.rescale))
