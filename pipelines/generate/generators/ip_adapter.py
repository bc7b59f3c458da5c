"""Generator `ip-adapter`: Stable Diffusion 1.x with an IP-Adapter, on the noised embedding of the image, no text.

Equal to `StableDiffusionPipeline` with the adapter loaded, called one image at a time with the empty prompt and the
same embedding and noise. No safety checker is loaded: those of the pipelines paint what they dislike black.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.encoders import DTYPES, Encoder, needed
from viewkit.pipelines.generate.folders import IpAdapterFolder
from viewkit.pipelines.generate.generators.embedding_noise import EmbeddingNoise, Sampling, Statistics
from viewkit.pipelines.generate.generators.empty_prompt import embed_nothing
from viewkit.pipelines.generate.generators.face import Setup
from viewkit.pipelines.generate.generators.solver import create_solver
from viewkit.pipelines.generate.pipeline_folder import HELP, load_part
from viewkit.shards.errors import DataError

TOKENS = 4
"""Tokens into which a plain adapter projects an embedding."""


class IpAdapter(EmbeddingNoise):
    """encoder: the folder's. Guidance leads away from an embedding of zeros, as in the stock pipeline; the prompt is
    empty on both sides."""

    name = "ip-adapter"

    def __init__(
        self,
        folder: IpAdapterFolder,
        encoder: Encoder,
        statistics: Statistics,
        sampling: Sampling,
        device: str = "cpu",
        *,
        precision: str = "fp32",
        solver: str = "checkpoint",
        again: Callable[[], EmbeddingNoise] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        from diffusers import AutoencoderKL, UNet2DConditionModel

        dtype = DTYPES[precision]
        # bf16 keeps 8 bits of a pixel: its VAE runs in fp32
        decoder = torch.float32 if precision == "bf16" else dtype
        self.folder = folder
        self.unet = load_part(UNet2DConditionModel, folder, "unet", torch_dtype=dtype, low_cpu_mem_usage=False)
        self.vae = load_part(AutoencoderKL, folder, "vae", torch_dtype=decoder, low_cpu_mem_usage=False)
        add_adapter(self.unet, folder, encoder.width)
        for network in (self.unet, self.vae):
            network.to(device=device, memory_format=torch.channels_last)
        self.prompt = embed_nothing(folder).to(device, dtype)
        self.scheduler = create_solver(folder.settings("scheduler"), folder.path / "scheduler", solver)
        self.factor = 2 ** (len(self.vae.config.block_out_channels) - 1)
        self.native_px = self.unet.config.sample_size * self.factor
        self.in_channels = self.unet.config.in_channels
        super().__init__(encoder, statistics, sampling, device, again, say)

    @classmethod
    def load(cls, setup: Setup, statistics: Statistics, again: Callable[[], EmbeddingNoise] | None) -> "IpAdapter":
        config = setup.config
        return cls(
            IpAdapterFolder(needed(setup.weights)),
            setup.encoder,
            statistics,
            Sampling.of(config),
            setup.run.device,
            precision=config.precision,
            solver=config.solver,
            again=again,
            say=setup.run.progress.message,
        )

    @classmethod
    def inputs(cls, config: GenerateConfig, weights: Path | None) -> Mapping[str, str]:
        cls.check(config)
        return IpAdapterFolder(needed(weights)).digests()

    def predict(
        self, x: Float[Tensor, "n c h w"], time: Int[Tensor, ""], embedding: Float[Tensor, "n d"], guided: bool
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"] | None]:
        if guided:
            x, embedding = torch.cat([x, x]), torch.cat([torch.zeros_like(embedding), embedding])
        output = self.unet(
            x.to(self.unet.dtype),
            time,
            encoder_hidden_states=self.prompt.expand(len(x), -1, -1),
            added_cond_kwargs={"image_embeds": [embedding.to(self.unet.dtype)[:, None]]},  # n 1 d
            return_dict=False,
        )[0].float()
        return (self.sampling.guidance.combine(*output.chunk(2)) if guided else output), None

    def decode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 3 s s"]:
        x = (x / self.vae.config.scaling_factor).to(self.vae.dtype)
        image: Tensor = self.vae.decode(x, return_dict=False)[0]
        return image.float() / 2 + 0.5


def add_adapter(unet: Any, folder: IpAdapterFolder, width: int) -> None:
    """Put the folder's adapter into the network. width: of the image encoder's embedding.

    `DataError` for an adapter of another kind (of faces, or "plus", which look at patch tokens) or another network.
    """
    from diffusers import StableDiffusionPipeline

    adapter = read_adapter(folder.adapter)
    projection = adapter["image_proj"].get("proj.weight")
    if projection is None:
        raise DataError(
            f"{folder.adapter}: an adapter of another kind; one that projects the image's embedding is needed, e.g. "
            f"ip-adapter_sd15.safetensors; {HELP}"
        )
    wanted = (TOKENS * unet.config.cross_attention_dim, width)
    if tuple(projection.shape) != wanted:
        raise DataError(
            f"{folder.adapter}: projects {projection.shape[1]} numbers to {projection.shape[0]}, and its image encoder "
            f"and unet need {wanted[1]} to {wanted[0]}; take the adapter of this Stable Diffusion, {HELP}"
        )
    holder = StableDiffusionPipeline(
        vae=None,
        text_encoder=None,
        tokenizer=None,
        unet=unet,
        scheduler=None,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    try:
        holder.load_ip_adapter(
            adapter, subfolder="", weight_name="", image_encoder_folder=None, low_cpu_mem_usage=False
        )
    except (KeyError, ValueError, RuntimeError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{folder.adapter}: does not fit the unet beside it ({first}); {HELP}") from error
    unet.to(unet.dtype).eval().requires_grad_(False)


def read_adapter(path: Path) -> dict[str, dict[str, Tensor]]:
    """The tensors of an adapter's file in its two groups, ``image_proj`` and ``ip_adapter``."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be read ({error}); download it anew, {HELP}") from error
    groups: dict[str, dict[str, Tensor]] = {"image_proj": {}, "ip_adapter": {}}
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        if group not in groups:
            raise DataError(f"{path}: holds the tensor {name}, so it is no IP-Adapter; {HELP}")
        groups[group][rest] = tensor
    return groups
