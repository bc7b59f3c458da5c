"""Everything that is loaded from a Stable unCLIP folder to generate with it."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.generate.config import Precision
from viewkit.pipelines.generate.encoders import DTYPES
from viewkit.pipelines.generate.generators.empty_prompt import embed_nothing
from viewkit.pipelines.generate.generators.solver import create_solver
from viewkit.pipelines.generate.pipeline_folder import HELP, load_part
from viewkit.pipelines.generate.unclip_folder import UnclipFolder
from viewkit.shards.errors import DataError


@dataclass(frozen=True)
class UnclipParts:
    """unet, vae: of diffusers. mean, std: of image embeddings. abar: of every noise level. prompt: text embedding of
    the empty prompt. scheduler: of diffusers, copied before use. folder: where they are from."""

    unet: Any
    vae: Any
    mean: Float[Tensor, " d"]
    std: Float[Tensor, " d"]
    abar: Float[Tensor, " l"]
    prompt: Float[Tensor, "1 t c"]
    scheduler: Any
    precision: Precision = "fp32"
    folder: UnclipFolder | None = None


def load_parts(folder: UnclipFolder, width: int, precision: Precision, solver: str) -> UnclipParts:
    """width: of the image encoder's embedding."""
    from diffusers import AutoencoderKL, UNet2DConditionModel

    dtype = DTYPES[precision]
    # bf16 keeps 8 bits of a pixel: its VAE runs in fp32
    vae_dtype = torch.float32 if precision == "bf16" else dtype
    mean, std = normaliser(folder, width)
    return UnclipParts(
        unet=load_part(UNet2DConditionModel, folder, "unet", torch_dtype=dtype, low_cpu_mem_usage=False),
        vae=load_part(AutoencoderKL, folder, "vae", torch_dtype=vae_dtype, low_cpu_mem_usage=False),
        mean=mean,
        std=std,
        abar=noising_schedule(folder),
        prompt=embed_nothing(folder),
        scheduler=create_solver(folder.settings("scheduler"), folder.path / "scheduler", solver),
        precision=precision,
        folder=folder,
    )


def normaliser(folder: UnclipFolder, width: int) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Mean and standard deviation of image embeddings, as plain fp32 tensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path, _ = folder.weights("image_normalizer")
    try:
        tensors = load_file(path)
        mean, std = (tensors[name].float().flatten() for name in ("mean", "std"))
    except (SafetensorError, KeyError) as error:
        raise DataError(f"{path}: cannot be loaded ({error}); download it anew, {HELP}") from error
    if not len(mean) == len(std) == width:
        raise DataError(f"{path}: has {len(mean)} numbers and the image encoder gives {width}; {HELP}")
    return mean, std


def noising_schedule(folder: UnclipFolder) -> Float[Tensor, " l"]:
    """abar of every noise level, as the checkpoint's own scheduler has it."""
    from diffusers import DDPMScheduler

    scheduler: Any = DDPMScheduler.from_config(folder.settings("image_noising_scheduler"))
    abar: Tensor = scheduler.alphas_cumprod
    return abar.float()
