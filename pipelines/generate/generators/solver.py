"""The sampler of a diffusion generator: the one its folder names, or another solver of the same process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viewkit.shards.errors import DataError

SOLVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "pndm": ("PNDMScheduler", {}),
    "dpmsolver++": ("DPMSolverMultistepScheduler", {}),
    "unipc": ("UniPCMultistepScheduler", {}),
    # DDIM clips predicted samples to [-1, 1] unless told otherwise, which is meant for pixels and ruins latents
    "ddim": ("DDIMScheduler", {"clip_sample": False}),
}


def create_solver(settings: Mapping[str, Any], folder: Path, solver: str) -> Any:
    """A scheduler of diffusers. settings: what `folder` says about it; betas, prediction type and offsets come from
    there whatever the solver. solver: a name of `SOLVERS`, or "checkpoint".

    Raises `DataError` when the folder names one that diffusers does not have.
    """
    import diffusers

    name, own = SOLVERS.get(solver, (str(settings.get("_class_name")), {}))
    kind = getattr(diffusers, name, None)
    if kind is None or not name.endswith("Scheduler"):
        raise DataError(f"{folder}: names the unknown scheduler {name}; choose one with --solver")
    return kind.from_config({**own, **settings})
