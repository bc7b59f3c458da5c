"""The autoencoder in whose latents a generator of one's own works above 64 px: diffusers' `AutoencoderKL`.

Either a small one is trained on the dataset's images (`autoencoding`), or a published one is read from a folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.generate.own.config import GeneratorSettings
from viewkit.pipelines.generate.own.network import GROUPS
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.weights.folder import PipelineFolder, load_part
from viewkit.shards.errors import ConfigError

CHANNELS = 4
"""Of the latents of one that is trained here."""
ROOT = "."


class AutoencoderFolder(PipelineFolder):
    """One autoencoder: its config.json and its safetensors, side by side."""

    title = "autoencoder's"
    weight_files: ClassVar[Mapping[str, str]] = {ROOT: "diffusion_pytorch_model"}


def create_autoencoder(settings: GeneratorSettings) -> Any:
    """With fresh weights, without attention, so that it can be trained on crops and used on whole images."""
    from diffusers import AutoencoderKL

    stages = len(settings.autoencoder)
    with seeded_weights(settings.seed):
        return AutoencoderKL(
            in_channels=3,
            out_channels=3,
            down_block_types=("DownEncoderBlock2D",) * stages,
            up_block_types=("UpDecoderBlock2D",) * stages,
            block_out_channels=settings.autoencoder,
            layers_per_block=1,
            latent_channels=CHANNELS,
            norm_num_groups=GROUPS,
            sample_size=settings.side_px,
            mid_block_add_attention=False,
            scaling_factor=1.0,
        )


def load_autoencoder(folder: Path) -> Any:
    """A published one, in fp32. `DataError` for a folder that is damaged, `ConfigError` for another kind."""
    from diffusers import AutoencoderKL

    found = AutoencoderFolder(folder)
    settings = found.settings(ROOT)
    if settings.get("_class_name") != "AutoencoderKL" or settings.get("shift_factor") is not None:
        raise ConfigError(
            f"{folder}: holds a {settings.get('_class_name')}; --autoencoder takes an AutoencoderKL whose latents "
            "have no shift, such as those of Stable Diffusion 1, 2 and XL"
        )
    return load_part(AutoencoderKL, found, ROOT, torch_dtype=torch.float32, low_cpu_mem_usage=False)


def autoencoder_digests(folder: Path | None) -> dict[str, str]:
    """SHA-256 of its files; part of the generator's identity."""
    if folder is None:
        return {}
    return {
        name.replace("weights/", "autoencoder/"): each for name, each in AutoencoderFolder(folder).digests().items()
    }


def latent_shape(autoencoder: Any, side_px: int) -> tuple[int, int, int]:
    """(c, h, w) of the latents of images of that side. `ConfigError` where it is no multiple of a latent's pixels."""
    factor = 2 ** (len(autoencoder.config.block_out_channels) - 1)
    if side_px % factor:
        raise ConfigError(f"the autoencoder has {factor} px a latent, and views are of {side_px} px, no multiple of it")
    return autoencoder.config.latent_channels, side_px // factor, side_px // factor


@torch.inference_mode()
def encode(autoencoder: Any, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c h w"]:
    """Latents of images -1 ... 1: the mean of what the encoder says, times the scaling factor."""
    found: Tensor = autoencoder.encode(images).latent_dist.mean
    return found * autoencoder.config.scaling_factor


@torch.inference_mode()
def reconstruction_db(autoencoder: Any, images: Float[Tensor, "n 3 s s"]) -> float:
    """Peak signal-to-noise ratio of images -1 ... 1 after encoding and decoding, in dB: views can be no finer."""
    decoded = autoencoder.decode(autoencoder.encode(images).latent_dist.mean, return_dict=False)[0].clamp(-1, 1)
    return float(10 * torch.log10(4 / (decoded - images).square().mean()))
