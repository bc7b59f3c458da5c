"""Generator `kandinsky`: the decoder of Kandinsky 2.2, conditioned on the noised embedding of the image itself.

Its prior, which makes such an embedding of a text, is not needed. Equal to `KandinskyV22Pipeline`, called one image
at a time with the same embedding and noise.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.encoders import DTYPES, Encoder, needed
from viewkit.pipelines.generate.folders import KandinskyFolder
from viewkit.pipelines.generate.generators.embedding_noise import LEARNED, EmbeddingNoise, Sampling, Statistics
from viewkit.pipelines.generate.generators.face import Setup
from viewkit.pipelines.generate.generators.solver import create_solver
from viewkit.pipelines.generate.pipeline_folder import load_part


class Kandinsky(EmbeddingNoise):
    """encoder: the folder's. Guidance leads away from the embedding of an image of CLIP's mean colour, as the stock
    prior does when there is no negative prompt."""

    name = "kandinsky"

    def __init__(
        self,
        folder: KandinskyFolder,
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
        from diffusers import UNet2DConditionModel, VQModel

        dtype = DTYPES[precision]
        # bf16 keeps 8 bits of a pixel: its decoder runs in fp32
        decoder = torch.float32 if precision == "bf16" else dtype
        self.folder = folder
        self.unet = load_part(UNet2DConditionModel, folder, "unet", torch_dtype=dtype, low_cpu_mem_usage=False)
        self.movq = load_part(VQModel, folder, "movq", torch_dtype=decoder, low_cpu_mem_usage=False)
        for network in (self.unet, self.movq):
            network.to(device=device, memory_format=torch.channels_last)
        self.scheduler = create_solver(_settings(folder, solver), folder.path / "scheduler", solver)
        self.factor = 2 ** (len(self.movq.config.block_out_channels) - 1)
        self.native_px = self.unet.config.sample_size * self.factor if self.unet.config.sample_size else 512
        self.in_channels = self.unet.config.in_channels
        super().__init__(encoder, statistics, sampling, device, again, say)
        side_px = encoder.preprocess.side_px
        self.empty = encoder.look(torch.zeros(1, 3, side_px, side_px, device=device))[1]

    @property
    def multiple(self) -> int:
        """The stock pipeline rounds other sides up."""
        return self.factor**2

    @classmethod
    def load(cls, setup: Setup, statistics: Statistics, again: Callable[[], EmbeddingNoise] | None) -> "Kandinsky":
        config = setup.config
        return cls(
            KandinskyFolder(needed(setup.weights)),
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
        return KandinskyFolder(needed(weights)).digests()

    def predict(
        self, x: Float[Tensor, "n c h w"], time: Int[Tensor, ""], embedding: Float[Tensor, "n d"], guided: bool
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"] | None]:
        """The variance is the conditioned half's: guidance is for the mean."""
        if guided:
            x, embedding = torch.cat([x, x]), torch.cat([self.empty.expand_as(embedding), embedding])
        output = self.unet(
            x.to(self.unet.dtype),
            time,
            encoder_hidden_states=None,
            added_cond_kwargs={"image_embeds": embedding.to(self.unet.dtype)},
            return_dict=False,
        )[0].float()
        noise, variance = output.split(self.in_channels, dim=1)
        if not guided:
            return noise, variance
        return self.sampling.guidance.combine(*noise.chunk(2)), variance.chunk(2)[1]

    def decode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 3 s s"]:
        image: Tensor = self.movq.decode(x.to(self.movq.dtype), force_not_quantize=True, return_dict=False)[0]
        return image.float() / 2 + 0.5


def _settings(folder: KandinskyFolder, solver: str) -> Mapping[str, Any]:
    """The scheduler's settings. Other solvers do not take a learned variance: they would cut latents to 3 channels."""
    settings = folder.settings("scheduler")
    if solver == "checkpoint" or settings.get("variance_type") not in LEARNED:
        return settings
    return {name: value for name, value in settings.items() if name != "variance_type"}
