"""Generator `unclip`: Stable unCLIP (GenView's), sampled by our own loop over diffusers' components.

Where `StableUnCLIPImg2ImgPipeline` takes one noise level a call, every row here has its own; seeds are per image, the
embedding noise is added in fp32, and no text encoder is kept. In fp32 it gives the pipeline's images.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from viewkit.pipelines.generate.config import Precision
from viewkit.pipelines.generate.encoders import DTYPES, UnclipEncoder
from viewkit.pipelines.generate.generators.face import Failed, Generated, Generator
from viewkit.pipelines.generate.noising import add_noise, standardise
from viewkit.pipelines.generate.padding import full_batches
from viewkit.pipelines.generate.unclip_folder import HELP, UnclipFolder, load_part
from viewkit.shards.codecs import encode_jpeg
from viewkit.shards.errors import ConfigError, DataError

VAE_BATCH = 4
"""Images decoded at a time: at 768 px more than 8 overrun 2^31 elements in the decoder, and speed does not change."""
LEAST_STD = 2.0
"""Grey levels; a picture that varies less is a failed one."""
QUALITY = 95
SOLVERS = {
    "pndm": "PNDMScheduler",
    "dpmsolver++": "DPMSolverMultistepScheduler",
    "unipc": "UniPCMultistepScheduler",
    "ddim": "DDIMScheduler",
}


class Unclip(Generator):
    """render_px: side at which it draws (None: the folder's own). output_px: side of what is stored.

    encoder: the folder's image encoder, shared with the foreground where that uses it too.
    """

    name = "unclip"

    def __init__(
        self,
        folder: UnclipFolder,
        encoder: UnclipEncoder,
        device: str,
        *,
        precision: Precision = "fp32",
        solver: str = "checkpoint",
        steps: int = 20,
        guidance: float = 10.0,
        render_px: int | None = None,
        output_px: int = 512,
    ) -> None:
        from diffusers import AutoencoderKL, UNet2DConditionModel

        self.folder, self.encoder, self.device = folder, encoder, device
        self.precision, self.solver, self.steps = precision, solver, steps
        self.guidance, self.output_px = guidance, output_px
        self.dtype = DTYPES[precision]
        # bf16 keeps 8 bits of a pixel: its VAE runs in fp32
        self.vae_dtype = torch.float32 if precision == "bf16" else self.dtype
        self.unet = load_part(UNet2DConditionModel, folder, "unet", torch_dtype=self.dtype, low_cpu_mem_usage=False)
        self.vae = load_part(AutoencoderKL, folder, "vae", torch_dtype=self.vae_dtype, low_cpu_mem_usage=False)
        for network in (self.unet, self.vae):
            network.to(device=device, memory_format=torch.channels_last)
        self.mean, self.std = (x.to(device) for x in normaliser(folder, encoder.width))
        self.abar = noising_schedule(folder).to(device)
        self.prompt = empty_prompt(folder).to(device, self.dtype)
        self.scheduler = sampler(folder, solver)
        factor = 2 ** (len(self.vae.config.block_out_channels) - 1)
        self.render_px = render_px or self.unet.config.sample_size * factor
        if self.render_px % 8 or self.render_px % factor:
            raise ConfigError(f"render_px is {self.render_px}; it must be a multiple of {max(8, factor)}")
        self.latent_shape = (self.unet.config.in_channels, self.render_px // factor, self.render_px // factor)

    def perturb(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n k"]:
        """The noised embedding with a sinusoidal code of its level appended: k = 2 d."""
        from diffusers.models.embeddings import get_timestep_embedding

        level = level.to(self.device)
        if int(level.min()) < 0 or int(level.max()) >= len(self.abar):
            raise ConfigError(f"noise levels must lie in 0 ... {len(self.abar) - 1}")
        z = standardise(embedding.float(), self.mean, self.std)
        e = add_noise(z, level, noise.to(z), self.abar) * self.std + self.mean
        code = get_timestep_embedding(level, e.shape[1], flip_sin_to_cos=True, downscale_freq_shift=0)
        return torch.cat([e, code], dim=1)

    def sample(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n ..."], keys: Sequence[str]
    ) -> list[Generated | Failed]:
        pixels, finite = self.pixels(conditioning, latents)
        return [_outcome(image, ok) for image, ok in zip(pixels, finite.tolist(), strict=True)]

    @torch.inference_mode()
    def pixels(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n c h w"]
    ) -> tuple[UInt8[np.ndarray, "n side side 3"], Bool[Tensor, " n"]]:
        """Images of `output_px`, and which rows stayed finite all along (the others are black)."""
        x = self.denoise(conditioning, latents)
        images = torch.cat([self.decode(batch)[:count] for batch, count in _micro_batches(x)])
        finite = (x.isfinite().flatten(1).all(dim=1) & images.isfinite().flatten(1).all(dim=1)).cpu()
        images = images.nan_to_num().clamp(0, 1)
        if self.output_px != self.render_px:
            size = (self.output_px, self.output_px)
            images = F.interpolate(images, size=size, mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
        return (images * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy(), finite

    def denoise(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n c h w"]
    ) -> Float[Tensor, "n c h w"]:
        """Latents after the last step. Classifier-free guidance: the other half sees zeros for the whole embedding.

        Latents stay in fp32 between the steps; only the network runs in the chosen precision.
        """
        guided = self.guidance > 1
        labels = conditioning.to(self.dtype)
        labels = torch.cat([torch.zeros_like(labels), labels]) if guided else labels
        prompt = self.prompt.expand(len(labels), -1, -1)
        scheduler = copy.deepcopy(self.scheduler)
        scheduler.set_timesteps(self.steps, device=self.device)
        x = latents.to(self.device, torch.float32) * scheduler.init_noise_sigma
        for t in scheduler.timesteps:
            doubled = torch.cat([x, x]) if guided else x
            doubled = scheduler.scale_model_input(doubled, t).to(self.dtype)
            output = self.unet(doubled, t, encoder_hidden_states=prompt, class_labels=labels, return_dict=False)[0]
            output = output.float()
            if guided:
                free, conditioned = output.chunk(2)
                output = free + self.guidance * (conditioned - free)
            x = scheduler.step(output, t, x, return_dict=False)[0]
        return x

    def decode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 3 s s"]:
        """Pixels, nominally 0 ... 1."""
        x = (x / self.vae.config.scaling_factor).to(self.vae_dtype)
        return self.vae.decode(x, return_dict=False)[0].float() / 2 + 0.5

    def fingerprint(self) -> Mapping[str, Any]:
        return {
            "generator": self.name,
            "weights": self.folder.digests(),
            "precision": self.precision,
            "solver": self.solver,
            "steps": self.steps,
            "guidance": self.guidance,
            "render_px": self.render_px,
            "output_px": self.output_px,
        }


def normaliser(folder: UnclipFolder, width: int) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Mean and standard deviation of image embeddings, as plain fp32 tensors."""
    from safetensors.torch import load_file

    path, _ = folder.weights("image_normalizer")
    tensors = load_file(path)
    mean, std = (tensors[name].float().flatten() for name in ("mean", "std"))
    if len(mean) != width:
        raise DataError(f"{path}: has {len(mean)} numbers and the image encoder gives {width}; {HELP}")
    return mean, std


def noising_schedule(folder: UnclipFolder) -> Float[Tensor, " l"]:
    """abar of every noise level, as the checkpoint's own scheduler has it."""
    from diffusers import DDPMScheduler

    scheduler: Any = DDPMScheduler.from_config(folder.settings("image_noising_scheduler"))
    abar: Tensor = scheduler.alphas_cumprod
    return abar.float()


def sampler(folder: UnclipFolder, solver: str) -> Any:
    """The scheduler the folder names, or another solver of the same process."""
    import diffusers

    settings = folder.settings("scheduler")
    name = settings.get("_class_name") if solver == "checkpoint" else SOLVERS[solver]
    kind = getattr(diffusers, str(name), None)
    if kind is None or not str(name).endswith("Scheduler"):
        raise DataError(f"{folder.path / 'scheduler'}: names the unknown scheduler {name}; choose one with --solver")
    return kind.from_config(settings)


@torch.inference_mode()
def empty_prompt(folder: UnclipFolder) -> Float[Tensor, "1 t c"]:
    """Text embedding of "", computed once; the text encoder is not kept."""
    from transformers import CLIPTextModel, CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(folder.path / "tokenizer", local_files_only=True)
    encoder = load_part(CLIPTextModel, folder, "text_encoder", dtype=torch.float32)
    length = tokenizer.model_max_length
    ids = tokenizer([""], padding="max_length", max_length=length, truncation=True, return_tensors="pt")
    mask = ids.attention_mask if getattr(encoder.config, "use_attention_mask", False) else None
    embedding: Tensor = encoder(ids.input_ids, attention_mask=mask)[0]
    return embedding


def _micro_batches(x: Float[Tensor, "n c h w"]) -> list[tuple[Tensor, int]]:
    """Full batches of the VAE, each with how many of its rows are wanted."""
    return [(x[batch], count) for batch, count in full_batches(range(len(x)), VAE_BATCH)]


def _outcome(image: UInt8[np.ndarray, "side side 3"], finite: bool) -> Generated | Failed:
    if not finite:
        return Failed("non_finite", "latents or pixels are not finite")
    if (spread := float(image.std())) < LEAST_STD:
        return Failed("near_constant", f"standard deviation {spread:.2f} grey levels")
    return Generated({"jpg": encode_jpeg(image, quality=QUALITY)}, {})
