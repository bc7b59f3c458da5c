"""How a latent diffusion generator samples: steps, solver, classifier-free guidance, and the noise of the steps."""

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.shards.errors import DataError

SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "pndm": ("PNDMScheduler", {}),
    "dpmsolver++": ("DPMSolverMultistepScheduler", {}),
    "unipc": ("UniPCMultistepScheduler", {}),
    # DDIM clips predicted samples to [-1, 1] unless told otherwise, which is meant for pixels and ruins latents
    "ddim": ("DDIMScheduler", {"clip_sample": False}),
}
LEARNED = ("learned", "learned_range")
"""Values of a scheduler's `variance_type` with which the network predicts the variance, too."""


@dataclass(frozen=True)
class Guidance:
    """Classifier-free guidance: how strong, during which steps, and how far its outputs are rescaled.

    scale: 1 means none. start, stop: shares of the steps between which it acts (Kynkäänniemi et al. 2024 guide in an
    interval of noise levels only). rescale: phi of Lin et al. 2024, 0 ... 1.
    """

    scale: float
    start: float = 0.0
    stop: float = 1.0
    rescale: float = 0.0

    def acts(self, step: int, steps: int) -> bool:
        """Whether step number `step` of `steps` also runs the network on the unconditional half."""
        return self.scale > 1 and self.start * steps <= step < self.stop * steps

    def combine(
        self, free: Float[Tensor, "n c h w"], conditioned: Float[Tensor, "n c h w"]
    ) -> Float[Tensor, "n c h w"]:
        """free + scale (conditioned - free); then phi of it rescaled to the deviation of `conditioned`, per row.

        Lin et al. 2024, "Common diffusion noise schedules and sample steps are flawed", eq. 14-16.
        """
        guided = free + self.scale * (conditioned - free)
        if self.rescale == 0:
            return guided
        axes = tuple(range(1, guided.ndim))
        spread = conditioned.std(dim=axes, keepdim=True) / guided.std(dim=axes, keepdim=True)
        return guided * (self.rescale * spread + (1 - self.rescale))


@dataclass(frozen=True)
class Sampling:
    """How views are sampled and stored, whatever the network. render_px: None for the folder's own side."""

    guidance: Guidance
    steps: int = 20
    render_px: int | None = None
    output_px: int = 512
    quality: int = 95
    format: str = "jpg"

    @staticmethod
    def of(config: GenerateConfig) -> "Sampling":
        config = config.decided()
        guidance = Guidance(config.guidance_scale, config.guidance_start, config.guidance_stop, config.guidance_rescale)
        output_px = Sampling.output_px if config.output_px is None else config.output_px
        return Sampling(guidance, config.steps, config.render_px, output_px, config.quality, config.format)


def create_solver(settings: Mapping[str, Any], folder: Path, solver: str) -> Any:
    """A scheduler of diffusers: the one its folder names, or another solver of the same process.

    settings: of the scheduler in `folder`; betas, prediction type and offsets come from there whatever the solver.
    solver: a name of `SOLVERS`, or "checkpoint". Raises `DataError` when the folder names one diffusers does not have.
    """
    import diffusers

    name, own = SOLVERS.get(solver, (str(settings.get("_class_name")), {}))
    kind = getattr(diffusers, name, None)
    if kind is None or not name.endswith("Scheduler"):
        raise DataError(f"{folder}: names the unknown scheduler {name}; choose one with --solver")
    return kind.from_config({**own, **settings})


def takes_noise(scheduler: Any) -> bool:
    """Whether its steps may sample noise of their own, as those of DDPM do."""
    return "generator" in inspect.signature(scheduler.step).parameters


def step_noise(latents: Float[Tensor, "n c h w"]) -> list[torch.Generator]:
    """A generator per row for the noise that a solver adds in every step, seeded by the row's latents alone.

    On the CPU, whose generators use the lower 32 bits of a seed.
    """
    rows = latents.detach().cpu().contiguous().numpy()
    seeds = [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=4).digest(), "little") for row in rows]
    return [torch.Generator().manual_seed(seed) for seed in seeds]
