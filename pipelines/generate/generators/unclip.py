"""Generator `unclip`: Stable unCLIP (GenView's), sampled by our own loop over diffusers' components.

Where `StableUnCLIPImg2ImgPipeline` takes one noise level a call, every row here has its own; seeds are per image, the
embedding noise is added in fp32, and no text encoder is kept. In fp32 it gives the pipeline's images.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.encoders import Encoder, UnclipEncoder, needed
from viewkit.pipelines.generate.generators.face import Failed, Generated, Generator, Setup
from viewkit.pipelines.generate.generators.guidance import Guidance
from viewkit.pipelines.generate.generators.pictures import outcomes, to_uint8
from viewkit.pipelines.generate.generators.unclip_parts import UnclipParts, load_parts
from viewkit.pipelines.generate.micro_batches import MicroBatches
from viewkit.pipelines.generate.noising import add_noise, standardise
from viewkit.pipelines.generate.unclip_folder import UnclipFolder
from viewkit.pipelines.stage import Silent
from viewkit.shards.errors import ConfigError

VAE_BATCH = 4
"""Images decoded at a time: at 768 px more than 8 overrun 2^31 elements in the decoder, and speed does not change."""


class Unclip(Generator):
    """render_px: side at which it draws (None: the folder's own). output_px: side of what is stored.

    encoder: the folder's image encoder, shared with the foreground where that uses it too. compiled: the UNet and the
    decoder go through torch.compile, with fixed shapes. say: where running out of memory is told.
    """

    name = "unclip"

    def __init__(
        self,
        parts: UnclipParts,
        encoder: Encoder,
        device: str,
        *,
        steps: int = 20,
        guidance: Guidance | None = None,
        render_px: int | None = None,
        output_px: int = 512,
        quality: int = 95,
        compiled: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.parts, self.encoder, self.device = parts, encoder, device
        self.steps, self.guidance = steps, guidance or Guidance(10.0)
        self.output_px, self.quality = output_px, quality
        self.unet, self.vae = parts.unet, parts.vae
        for network in (self.unet, self.vae):
            network.to(device=device, memory_format=torch.channels_last)
        self.predict, self.decoder = self.unet, self.vae.decode
        if compiled:
            self.predict, self.decoder = (torch.compile(f, dynamic=False) for f in (self.unet, self.vae.decode))
        self.dtype = self.unet.dtype
        self.mean, self.std, self.abar = (x.to(device) for x in (parts.mean, parts.std, parts.abar))
        self.prompt = parts.prompt.to(device, self.dtype)
        self.decoding = MicroBatches(VAE_BATCH, "generate: decoding", say or Silent().message)
        factor = 2 ** (len(self.vae.config.block_out_channels) - 1)
        self.render_px = render_px or self.unet.config.sample_size * factor
        if self.render_px % 8 or self.render_px % factor:
            raise ConfigError(f"render_px is {self.render_px}; it must be a multiple of {max(8, factor)}")
        self.latent_shape = (self.unet.config.in_channels, self.render_px // factor, self.render_px // factor)
        self._twin: Unclip | None = None

    @classmethod
    def create(cls, setup: Setup) -> "Unclip":
        config, device = setup.config, setup.run.device
        folder = UnclipFolder(needed(setup.weights))
        shared = isinstance(setup.encoder, UnclipEncoder)
        encoder = setup.encoder if shared else UnclipEncoder(folder, device, config.precision)
        return cls(
            load_parts(folder, encoder.width, config.precision, config.solver),
            encoder,
            device,
            steps=config.steps,
            guidance=Guidance(
                config.guidance_scale, config.guidance_start, config.guidance_stop, config.guidance_rescale
            ),
            render_px=config.render_px,
            output_px=config.output_px,
            quality=config.quality,
            compiled=setup.compiled,
            say=setup.run.progress.message,
        )

    @classmethod
    def inputs(cls, config: GenerateConfig, weights: Path | None) -> Mapping[str, str]:
        return UnclipFolder(needed(weights)).digests()

    def perturb(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n k"]:
        """The noised embedding with a sinusoidal code of its level appended: k = 2 d."""
        from diffusers.models.embeddings import get_timestep_embedding

        if int(level.min()) < 0 or int(level.max()) >= len(self.abar):
            raise ConfigError(f"noise levels must lie in 0 ... {len(self.abar) - 1}")
        level = level.to(self.device)
        z = standardise(embedding.float(), self.mean, self.std)
        e = add_noise(z, level, noise.to(z), self.abar) * self.std + self.mean
        code = get_timestep_embedding(level, e.shape[1], flip_sin_to_cos=True, downscale_freq_shift=0)
        return torch.cat([e, code], dim=1)

    def sample(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n ..."], keys: Sequence[str]
    ) -> list[Generated | Failed]:
        pixels, finite = self.pixels(conditioning, latents)
        facts = {"decoded_by": self.decoding.size} if self.decoding.shrunk else {}
        return outcomes(pixels, finite, self.quality, facts)

    @torch.inference_mode()
    def pixels(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n c h w"]
    ) -> tuple[UInt8[np.ndarray, "n side side 3"], Bool[Tensor, " n"]]:
        """Images of `output_px`, and which rows stayed finite all along (the others are black)."""
        x = self.denoise(conditioning, latents)
        images = torch.stack(self.decoding.run(len(x), lambda rows: list(self.decode(x[rows]))))
        finite = (x.isfinite().flatten(1).all(dim=1) & images.isfinite().flatten(1).all(dim=1)).cpu()
        return to_uint8(images, self.output_px), finite

    def denoise(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n c h w"]
    ) -> Float[Tensor, "n c h w"]:
        """Latents after the last step. Guidance: the unconditional half sees zeros for the whole embedding.

        Latents stay in fp32 between the steps; only the network runs in the chosen precision. The solver's numbers
        stay on the CPU, so that no step waits for the device.
        """
        labels = conditioning.to(self.device, self.dtype)
        doubled = torch.cat([torch.zeros_like(labels), labels])
        scheduler = copy.deepcopy(self.parts.scheduler)
        scheduler.set_timesteps(self.steps)
        times = scheduler.timesteps.to(self.device)
        x = latents.to(self.device, torch.float32) * scheduler.init_noise_sigma
        for step, time in enumerate(scheduler.timesteps):
            seen = scheduler.scale_model_input(x, time).to(self.dtype)
            if self.guidance.acts(step, len(times)):
                output = self.guidance.combine(*self._predict(torch.cat([seen, seen]), times[step], doubled).chunk(2))
            else:
                output = self._predict(seen, times[step], labels)
            x = scheduler.step(output, time, x, return_dict=False)[0]
        return x

    def _predict(
        self, x: Float[Tensor, "n c h w"], time: Int[Tensor, ""], labels: Float[Tensor, "n k"]
    ) -> Float[Tensor, "n c h w"]:
        """The network's output, in fp32."""
        prompt = self.prompt.expand(len(x), -1, -1)
        output: Tensor = self.predict(x, time, encoder_hidden_states=prompt, class_labels=labels, return_dict=False)[0]
        return output.float()

    def decode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 3 s s"]:
        """Pixels, nominally 0 ... 1."""
        x = (x / self.vae.config.scaling_factor).to(self.vae.dtype)
        image: Tensor = self.decoder(x, return_dict=False)[0]
        return image.float() / 2 + 0.5

    def in_fp32(self) -> "Unclip | None":
        """Loaded when first asked for, then kept: 3.8 GB with the published weights."""
        folder = self.parts.folder
        if self.parts.precision == "fp32" or folder is None:
            return None
        if self._twin is None:
            self._twin = Unclip(
                replace(load_parts(folder, len(self.mean), "fp32", "checkpoint"), scheduler=self.parts.scheduler),
                self.encoder,
                self.device,
                steps=self.steps,
                guidance=self.guidance,
                render_px=self.render_px,
                output_px=self.output_px,
                quality=self.quality,
                say=self.decoding.say,
            )
        return self._twin

    def fingerprint(self) -> Mapping[str, Any]:
        folder = self.parts.folder
        return {
            "generator": self.name,
            "weights": {} if folder is None else folder.digests(),
            "precision": self.parts.precision,
            "solver": type(self.parts.scheduler).__name__,
            "steps": self.steps,
            "guidance": asdict(self.guidance),
            "render_px": self.render_px,
            "output_px": self.output_px,
            "quality": self.quality,
        }
