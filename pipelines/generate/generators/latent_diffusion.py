"""What latent diffusion generators share that are conditioned on a noised image embedding.

Embeddings are noised in the space where they have mean 0 and deviation 1, each row at its own level. Then the solver's
steps run with guidance, latents are decoded in micro-batches, and the pictures are checked, resized and encoded. A
subclass says how its networks are loaded and called (`load`, `predict`), and, where it differs from the usual, how the
embedding becomes the conditioning (`perturb`), what is guided away from (`unconditional`) and how latents are decoded.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from viewkit.pipelines.encoders.clip_folders import ClipFolder
from viewkit.pipelines.encoders.encoder import DTYPES, Encoder
from viewkit.pipelines.encoders.names import resolve_precision
from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.interface import Failed, Generated, Generator, Setup
from viewkit.pipelines.generate.generators.networks import Networks
from viewkit.pipelines.generate.generators.pictures import outcomes, to_uint8
from viewkit.pipelines.generate.generators.sampling import LEARNED, Sampling, step_noise, takes_noise
from viewkit.pipelines.generate.micro_batches import MicroBatches
from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine
from viewkit.pipelines.models.compiling import compile_privately
from viewkit.pipelines.weights.folder import PipelineFolder, require_folder
from viewkit.shards.errors import ConfigError

DECODED = 4
"""Images decoded at a time: at 768 px more than 8 overrun 2^31 elements in the decoder, and speed does not change."""
NATIVE_PX = 512
"""Side at which latents are sampled where neither option nor folder names one."""


class LatentDiffusion(Generator):
    """encoder: of the folder, shared with the foreground where that uses it too. space: where embeddings are noised.

    compiled: UNet and decoder go through torch.compile, with fixed shapes. make_fp32: loads the same generator in fp32,
    None where this one is. say: called with a line for the user when memory runs out.
    """

    folder_class: ClassVar[type[PipelineFolder]]
    own_encoder: ClassVar[ClipFolder]
    """The image encoder in that folder, whose embedding conditions the networks."""

    def __init__(
        self,
        networks: Networks,
        space: NoiseSpace,
        encoder: Encoder,
        sampling: Sampling,
        device: str = "cpu",
        *,
        compiled: bool = False,
        make_fp32: Callable[[], "LatentDiffusion"] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.encoder, self.sampling, self.device = encoder, sampling, device
        self.unet, self.autoencoder, self.scheduler = networks.unet, networks.autoencoder, networks.scheduler
        for network in (self.unet, self.autoencoder):
            network.to(device=device, memory_format=torch.channels_last)
        self.network, self.decoder = self.unet, self.autoencoder.decode
        if compiled:
            self.network, self.decoder = (compile_privately(f, dynamic=False) for f in (self.network, self.decoder))
        self.prompt = None if networks.prompt is None else networks.prompt.to(device, self.unet.dtype)
        self.space = space.to(device)
        self.say = say or Silent().message
        self.decoding = MicroBatches(DECODED, "generate: decoding", self.say)
        self.make_fp32 = make_fp32
        self._fp32_copy: LatentDiffusion | None = None
        self.factor = 2 ** (len(self.autoencoder.config.block_out_channels) - 1)
        self.render_px = sampling.render_px or self._native_px()
        if self.render_px % (multiple := max(8, self.multiple)):
            raise ConfigError(f"render_px is {self.render_px}; generator {self.name} needs a multiple of {multiple}")
        side = self.render_px // self.factor
        self.latent_shape = (self.unet.config.in_channels, side, side)

    def _native_px(self) -> int:
        """Side that the network was trained at, as its settings have it."""
        latents = self.unet.config.sample_size
        return latents * self.factor if latents else NATIVE_PX

    @property
    def multiple(self) -> int:
        """What the side must be a multiple of; `factor` is the pixels per latent."""
        return self.factor

    @classmethod
    def create(cls, setup: Setup) -> "LatentDiffusion":
        cls.check(setup.config)
        folder = cls._folder(setup.weights)
        encoder = setup.encoder
        if setup.config.encoder_name != cls.name:
            precision = resolve_precision(setup.config.precision, setup.run.device)
            encoder = cls.own_encoder.create(folder.path, setup.run.device, precision)
        return cls.assemble(setup, folder, encoder)

    @classmethod
    def assemble(cls, setup: Setup, folder: PipelineFolder, encoder: Encoder) -> "LatentDiffusion":
        """The generator with the networks of its folder, in the precision asked for. encoder: conditions it."""
        config, device = setup.config, setup.run.device
        precision = resolve_precision(config.precision, device)
        space = cls.space_of(folder, setup.foreground, encoder.width)

        def make(precision: str, compiled: bool, make_fp32: Callable[[], LatentDiffusion] | None) -> LatentDiffusion:
            networks = cls.load(folder, encoder.width, precision, config.solver)
            say = setup.run.progress.message
            sampling = Sampling.of(config)
            return cls(networks, space, encoder, sampling, device, compiled=compiled, make_fp32=make_fp32, say=say)

        half = precision != "fp32"
        return make(precision, setup.compiled, (lambda: make("fp32", False, None)) if half else None)

    @classmethod
    def inputs(cls, config: GenerateConfig, weights: Path | None) -> Mapping[str, str]:
        cls.check(config)
        return cls._folder(weights).digests()

    @classmethod
    def _folder(cls, weights: Path | None) -> PipelineFolder:
        return cls.folder_class(require_folder(weights, f"generator '{cls.name}'"))

    @classmethod
    def check(cls, config: GenerateConfig) -> None:
        """`ConfigError` unless the foreground is of the generator's own encoder, whose statistics `space_of` takes."""
        if config.encoder_name != cls.name:
            raise ConfigError(
                f"generator {cls.name} noises embeddings by the statistics of its own encoder, and --encoder is "
                f"{config.encoder_name}; leave --encoder out"
            )

    @classmethod
    def space_of(cls, folder: PipelineFolder, foreground: Foreground, width: int) -> NoiseSpace:
        """Where embeddings are noised: by default the dataset's own statistics, on unCLIP's schedule, which suits
        networks that were trained without noise on the embedding. width: of the embedding."""
        return NoiseSpace(foreground.mean, foreground.std, squared_cosine())

    @classmethod
    @abstractmethod
    def load(cls, folder: PipelineFolder, width: int, precision: str, solver: str) -> Networks:
        """width: of the image encoder's embedding. `DataError` for weights that are damaged or do not fit."""

    @abstractmethod
    def predict(
        self, x: Float[Tensor, "n c h w"], time: Int[Tensor, ""], conditioning: Float[Tensor, "n k"]
    ) -> Float[Tensor, "n o h w"]:
        """One forward pass of the network, its output in fp32: o is c, or 2 c where it also predicts a variance."""

    def perturb(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n k"]:
        return self.space.restored(self.space.noised(embedding, level, noise))

    def unconditional(self, conditioning: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """The conditioning that guidance leads away from."""
        return torch.zeros_like(conditioning)

    def decode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 3 s s"]:
        """Pixels, nominally 0 ... 1."""
        x = (x / self.autoencoder.config.scaling_factor).to(self.autoencoder.dtype)
        image: Tensor = self.decoder(x, return_dict=False)[0]
        return image.float() / 2 + 0.5

    def sample(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n ..."], keys: Sequence[str]
    ) -> list[Generated | Failed]:
        pixels, finite = self.pixels(conditioning, latents)
        facts = {"decoded_by": self.decoding.size} if self.decoding.shrunk else {}
        return outcomes(pixels, finite, self.sampling.quality, facts, self.sampling.format)

    @torch.inference_mode()
    def pixels(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n c h w"]
    ) -> tuple[UInt8[np.ndarray, "n side side 3"], Bool[Tensor, " n"]]:
        """Images of `output_px`, and which rows stayed finite all along (the others are black)."""
        x = self.denoise(conditioning, latents)
        images = torch.stack(self.decoding.run(len(x), lambda rows: list(self.decode(x[rows]))))
        finite = (x.isfinite().flatten(1).all(dim=1) & images.isfinite().flatten(1).all(dim=1)).cpu()
        return to_uint8(images, self.sampling.output_px), finite

    def denoise(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n c h w"]
    ) -> Float[Tensor, "n c h w"]:
        """Latents after the last step. They stay in fp32 between the steps; only the network runs in its precision.

        The solver's numbers stay on the CPU, so that no step waits for the device.
        """
        scheduler, guidance, steps = copy.deepcopy(self.scheduler), self.sampling.guidance, self.sampling.steps
        scheduler.set_timesteps(steps)
        times = scheduler.timesteps.to(self.device)
        options = {"generator": step_noise(latents)} if takes_noise(scheduler) else {}
        learned = scheduler.config.get("variance_type") in LEARNED
        x = latents.to(self.device, torch.float32) * scheduler.init_noise_sigma
        conditioning = conditioning.to(self.device)
        for step, time in enumerate(scheduler.timesteps):
            scaled = scheduler.scale_model_input(x, time)
            output = self._guided(scaled, times[step], conditioning, guidance.acts(step, len(times)), learned)
            x = scheduler.step(output, time, x, return_dict=False, **options)[0]
        return x

    def _guided(
        self,
        x: Float[Tensor, "n c h w"],
        time: Int[Tensor, ""],
        conditioning: Float[Tensor, "n k"],
        guided: bool,
        learned: bool,
    ) -> Float[Tensor, "n o h w"]:
        """What the solver gets: the prediction, guided or not; with a `learned` variance, the conditioned half's."""
        channels = x.shape[1]
        if guided:
            x, conditioning = torch.cat([x, x]), torch.cat([self.unconditional(conditioning), conditioning])
        output = self.predict(x, time, conditioning)
        noise, variance = output[:, :channels], output[:, channels:]
        if guided:
            noise, variance = self.sampling.guidance.combine(*noise.chunk(2)), variance.chunk(2)[1]
        return torch.cat([noise, variance], dim=1) if learned else noise

    @property
    def precision(self) -> str:
        return next(name for name, dtype in DTYPES.items() if dtype == self.unet.dtype)

    def in_fp32(self) -> "LatentDiffusion | None":
        """Loaded when first asked for, then kept: 3.8 GB with the published weights of unCLIP.

        None also where memory does not suffice for it, which is said once; the rows that asked for it are rejected.
        """
        if self._fp32_copy is None and self.make_fp32 is not None:
            self._fp32_copy = _unless_out_of_memory(self.make_fp32)
            if self._fp32_copy is None:
                self.make_fp32 = None
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                self.say(
                    f"generate: no memory for a copy of the generator in fp32, so images that fail in {self.precision} "
                    "are rejected; to retry them use --precision fp32 or a device with more memory"
                )
        return self._fp32_copy


def _unless_out_of_memory(make: Callable[[], LatentDiffusion]) -> LatentDiffusion | None:
    """A frame of its own: the error holds what was allocated as long as it lives."""
    try:
        return make()
    except torch.OutOfMemoryError:
        return None
