"""The network of a generator of one's own, and its folder: parts of diffusers under unCLIP's names.

The folder has what an unCLIP folder has, less what the dataset and pixels make superfluous: the image encoder is the
estimator, there is no text, and views of up to 64 px are made without an autoencoder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.generate.own.config import GeneratorSettings
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.weights.folder import PipelineFolder
from viewkit.shards.errors import ConfigError

GROUPS = 8
"""Groups of a group norm. As many as channels would take away what is the same all over an image: its mean colour, and
all that the condition adds."""
HEAD = 32
"""Channels of an attention head, at most."""
PROCESS = {"num_train_timesteps": 1000, "beta_schedule": "squaredcos_cap_v2"}
"""The noise on embeddings (unCLIP's) and that on pixels or latents: squared cosine, levels 0 ... 999."""
AUTOENCODER = "vae"
"""The autoencoder's part of the folder."""


class OwnFolder(PipelineFolder):
    title = "generator's"
    weight_files: ClassVar[Mapping[str, str]] = {
        "unet": "diffusion_pytorch_model",
        "image_normalizer": "diffusion_pytorch_model",
    }
    setting_files: ClassVar[Mapping[str, str]] = {
        "scheduler": "scheduler_config.json",
        "image_noising_scheduler": "scheduler_config.json",
    }


class OwnLatentFolder(OwnFolder):
    """With the autoencoder in whose latents the network works."""

    weight_files: ClassVar[Mapping[str, str]] = {**OwnFolder.weight_files, AUTOENCODER: "diffusion_pytorch_model"}


def open_own_folder(path: Path) -> OwnFolder:
    """`DataError` where a part is missing or damaged."""
    return OwnLatentFolder(path) if (path / AUTOENCODER).is_dir() else OwnFolder(path)


def check_shape(settings: GeneratorSettings, shape: tuple[int, int, int]) -> None:
    """`ConfigError` where the network's stages cannot halve the side."""
    _, side, _ = shape
    if side % (multiple := 2 ** (len(settings.channels) - 1)):
        raise ConfigError(
            f"preset {settings.preset} works in {side} x {side} latents here, and its network needs a multiple of "
            f"{multiple}; take another preset or autoencoder"
        )


def create_unet(settings: GeneratorSettings, width: int, shape: tuple[int, int, int]) -> Any:
    """A `UNet2DConditionModel` with fresh weights, conditioned on a noised embedding and its level's code.

    width: d, of the embedding; the condition has 2 d numbers and enters beside the time, as in unCLIP. shape: (c, h, w)
    of the pixels or latents it works in. `ConfigError` where its stages cannot halve them.
    """
    from diffusers import UNet2DConditionModel

    check_shape(settings, shape)
    channels, side, _ = shape
    first = settings.channels[0]
    down = ["AttnDownBlock2D" if attends else "DownBlock2D" for attends in settings.attention]
    up = ["AttnUpBlock2D" if attends else "UpBlock2D" for attends in reversed(settings.attention)]
    with seeded_weights(settings.seed):
        return UNet2DConditionModel(
            sample_size=side,
            in_channels=channels,
            out_channels=channels,
            down_block_types=tuple(down),
            mid_block_type="UNetMidBlock2D",
            up_block_types=tuple(up),
            block_out_channels=settings.channels,
            layers_per_block=settings.layers,
            attention_head_dim=min(HEAD, first),
            norm_num_groups=GROUPS,
            resnet_time_scale_shift="scale_shift",
            class_embed_type="projection",
            projection_class_embeddings_input_dim=2 * width,
        )


def image_process() -> Any:
    """The noise on pixels or latents while training; the network predicts the velocity (Salimans & Ho 2022)."""
    from diffusers import DDPMScheduler

    return DDPMScheduler(**PROCESS, prediction_type="v_prediction")


def create_sampler() -> Any:
    """The solver the folder names: DPM-Solver++ on the process of the training."""
    from diffusers import DPMSolverMultistepScheduler

    return DPMSolverMultistepScheduler(**PROCESS, prediction_type="v_prediction", timestep_spacing="trailing")


def save_folder(
    folder: Path, unet: Any, mean: Float[Tensor, " d"], std: Float[Tensor, " d"], autoencoder: Any | None = None
) -> None:
    """Write all parts; `open_own_folder` reads them."""
    from diffusers import DDPMScheduler
    from diffusers.pipelines.stable_diffusion.stable_unclip_image_normalizer import StableUnCLIPImageNormalizer

    normaliser = StableUnCLIPImageNormalizer(embedding_dim=len(mean))
    normaliser.mean.data, normaliser.std.data = mean[None].clone(), std[None].clone()
    parts = {"unet": unet, "image_normalizer": normaliser}
    for part, model in (parts if autoencoder is None else {**parts, AUTOENCODER: autoencoder}).items():
        model.save_pretrained(folder / part, safe_serialization=True)
    create_sampler().save_pretrained(folder / "scheduler")
    DDPMScheduler(**PROCESS).save_pretrained(folder / "image_noising_scheduler")


class Pixels(nn.Module):
    """Stands for an autoencoder where there is none: latents are pixels, -1 ... 1, and stay what they are."""

    dtype = torch.float32

    class config:
        block_out_channels = (3,)
        scaling_factor = 1.0

    def decode(self, x: Float[Tensor, "n 3 s s"], return_dict: bool = False) -> tuple[Float[Tensor, "n 3 s s"]]:
        return (x,)
