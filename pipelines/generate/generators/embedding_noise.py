"""What generators have in common whose networks know no noise level: noise on the embedding alone, then a latent
diffusion model conditioned on it.

The noise is unCLIP's, in the space where the dataset's embeddings have mean 0 and deviation 1, so that a level means
the same strength everywhere; each row has its own. Subclasses say how the network is called, and how latents are
decoded.
"""

import copy
import hashlib
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.encoders import DTYPES, Encoder
from viewkit.pipelines.generate.generators.face import Failed, Generated, Generator, Setup
from viewkit.pipelines.generate.generators.guidance import Guidance
from viewkit.pipelines.generate.generators.pictures import outcomes, to_uint8
from viewkit.pipelines.generate.micro_batches import MicroBatches
from viewkit.pipelines.generate.noising import add_noise, squared_cosine, standardise
from viewkit.pipelines.generate.pipeline_folder import PipelineFolder
from viewkit.pipelines.stage import Silent
from viewkit.shards.errors import ConfigError

DECODED = 4
"""Images decoded at a time: at 768 px more than 8 overrun 2^31 elements in the decoder, and speed does not change."""


@dataclass(frozen=True)
class Statistics:
    """Of the embeddings of the encoder that conditions, over the dataset."""

    mean: Float[Tensor, " d"]
    std: Float[Tensor, " d"]


@dataclass(frozen=True)
class Sampling:
    """How latents are drawn and stored, whatever the network. render_px: None for the folder's own side."""

    guidance: Guidance
    steps: int = 20
    render_px: int | None = None
    output_px: int = 512
    quality: int = 95

    @staticmethod
    def of(config: GenerateConfig) -> "Sampling":
        guidance = Guidance(config.guidance_scale, config.guidance_start, config.guidance_stop, config.guidance_rescale)
        return Sampling(guidance, config.steps, config.render_px, config.output_px, config.quality)


class EmbeddingNoise(Generator):
    """scheduler: of diffusers, copied before use. native_px: side the network was made for. factor: pixels a latent.

    again: makes the same generator in fp32, None where this one is. say: where running out of memory is told.
    """

    unet: Any
    scheduler: Any
    folder: PipelineFolder
    native_px: int
    factor: int
    in_channels: int

    def __init__(
        self,
        encoder: Encoder,
        statistics: Statistics,
        sampling: Sampling,
        device: str,
        again: Callable[[], "EmbeddingNoise"] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.encoder, self.device, self.sampling = encoder, device, sampling
        self.mean, self.std = statistics.mean.to(device), statistics.std.to(device)
        self.abar = squared_cosine().to(device)
        self.again = again
        self._twin: EmbeddingNoise | None = None
        self.decoding = MicroBatches(DECODED, "generate: decoding", say or Silent().message)
        self.render_px = sampling.render_px or self.native_px
        if self.render_px % (multiple := max(8, self.multiple)):
            raise ConfigError(f"render_px is {self.render_px}; generator {self.name} needs a multiple of {multiple}")
        side = self.render_px // self.factor
        self.latent_shape = (self.in_channels, side, side)

    @property
    def multiple(self) -> int:
        """What the side must be a multiple of."""
        return self.factor

    @classmethod
    def create(cls, setup: Setup) -> "EmbeddingNoise":
        config = setup.config
        cls.check(config)
        statistics = Statistics(setup.foreground.mean, setup.foreground.std)

        def again() -> "EmbeddingNoise":
            return cls.create(replace(setup, config=replace(config, precision="fp32"), compiled=False))

        made = cls.load(setup, statistics, None if config.precision == "fp32" else again)
        if setup.compiled:
            made.unet = torch.compile(made.unet, dynamic=False)
        return made

    @classmethod
    @abstractmethod
    def load(
        cls, setup: Setup, statistics: Statistics, again: Callable[[], "EmbeddingNoise"] | None
    ) -> "EmbeddingNoise":
        """The generator with its networks. `DataError` for weights that are missing or not what they should be."""

    @classmethod
    def check(cls, config: GenerateConfig) -> None:
        """`ConfigError` unless the foreground's encoder is the one that conditions: its statistics are needed."""
        if config.encoder_name != cls.name:
            raise ConfigError(
                f"generator {cls.name} noises embeddings by the statistics of its own encoder, and --encoder is "
                f"{config.encoder_name}; leave --encoder out"
            )

    @abstractmethod
    def predict(
        self, x: Float[Tensor, "n c h w"], time: Int[Tensor, ""], embedding: Float[Tensor, "n d"], guided: bool
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"] | None]:
        """What the network says of latents, after guidance where `guided`, and of their variance if it learned it."""

    @abstractmethod
    def decode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 3 s s"]:
        """Pixels, nominally 0 ... 1."""

    def perturb(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n d"]:
        if int(level.min()) < 0 or int(level.max()) >= len(self.abar):
            raise ConfigError(f"noise levels must lie in 0 ... {len(self.abar) - 1}")
        z = standardise(embedding.float().to(self.device), self.mean, self.std)
        return add_noise(z, level.to(self.device), noise.to(z), self.abar) * self.std + self.mean

    def sample(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n ..."], keys: Sequence[str]
    ) -> list[Generated | Failed]:
        pixels, finite = self.pixels(conditioning, latents)
        facts = {"decoded_by": self.decoding.size} if self.decoding.shrunk else {}
        return outcomes(pixels, finite, self.sampling.quality, facts)

    @torch.inference_mode()
    def pixels(
        self, conditioning: Float[Tensor, "n d"], latents: Float[Tensor, "n c h w"]
    ) -> tuple[UInt8[np.ndarray, "n side side 3"], Bool[Tensor, " n"]]:
        """Images of `output_px`, and which rows stayed finite all along (the others are black)."""
        x = self.denoise(conditioning, latents)
        images = torch.stack(self.decoding.run(len(x), lambda rows: list(self.decode(x[rows]))))
        finite = (x.isfinite().flatten(1).all(dim=1) & images.isfinite().flatten(1).all(dim=1)).cpu()
        return to_uint8(images, self.sampling.output_px), finite

    def denoise(self, embedding: Float[Tensor, "n d"], latents: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Latents after the last step. They stay in fp32 between the steps, and the solver's numbers on the CPU."""
        scheduler, guidance, steps = copy.deepcopy(self.scheduler), self.sampling.guidance, self.sampling.steps
        scheduler.set_timesteps(steps)
        times = scheduler.timesteps.to(self.device)
        options = {"generator": step_noise(latents)} if takes_noise(scheduler) else {}
        x = latents.to(self.device, torch.float32) * scheduler.init_noise_sigma
        embedding = embedding.to(self.device)
        for step, time in enumerate(scheduler.timesteps):
            seen = scheduler.scale_model_input(x, time)
            output, variance = self.predict(seen, times[step], embedding, guidance.acts(step, len(times)))
            if variance is not None and scheduler.config.get("variance_type") in LEARNED:
                output = torch.cat([output, variance], dim=1)
            x = scheduler.step(output, time, x, return_dict=False, **options)[0]
        return x

    def in_fp32(self) -> "EmbeddingNoise | None":
        """Loaded when first asked for, then kept."""
        if self._twin is None and self.again is not None:
            self._twin = self.again()
        return self._twin

    def fingerprint(self) -> Mapping[str, Any]:
        return {
            "generator": self.name,
            "weights": self.folder.digests(),
            "precision": next(name for name, dtype in DTYPES.items() if dtype == self.unet.dtype),
            "solver": type(self.scheduler).__name__,
            **asdict(self.sampling),
            "render_px": self.render_px,
        }


LEARNED = ("learned", "learned_range")


def takes_noise(scheduler: Any) -> bool:
    """Whether its steps may draw noise of their own, as those of DDPM do."""
    return "generator" in inspect.signature(scheduler.step).parameters


def step_noise(latents: Float[Tensor, "n c h w"]) -> list[torch.Generator]:
    """A generator a row for the noise a solver draws in every step, seeded by the row's latents, so that nothing else
    decides it. On the CPU, whose generators use the lower 32 bits of a seed."""
    rows = latents.detach().cpu().contiguous().numpy()
    seeds = [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=4).digest(), "little") for row in rows]
    return [torch.Generator().manual_seed(seed) for seed in seeds]
