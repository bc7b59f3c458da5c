"""Generator `unclip`: Stable unCLIP (GenView's), sampled by our own loop over diffusers' components.

Where `StableUnCLIPImg2ImgPipeline` takes one noise level per call, every row here has its own; seeds are per image, the
embedding noise is added in fp32, and no text encoder is kept. In fp32 it gives the pipeline's images.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.clip_folders import ClipFolder
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.latent_diffusion import LatentDiffusion
from viewkit.pipelines.generate.generators.networks import Networks, embed_empty_prompt, load_autoencoder, load_unet
from viewkit.pipelines.generate.generators.sampling import create_solver
from viewkit.pipelines.generate.noising import NoiseSpace, with_level_code
from viewkit.pipelines.weights.folder import SOURCES, PipelineFolder
from viewkit.shards.errors import DataError


class UnclipFolder(PipelineFolder):
    title = "Stable unCLIP"
    classes = ("StableUnCLIPImg2ImgPipeline", "StableUnCLIPPipeline")
    weight_files: ClassVar[Mapping[str, str]] = {
        "image_encoder": "model",
        "image_normalizer": "diffusion_pytorch_model",
        "text_encoder": "model",
        "unet": "diffusion_pytorch_model",
        "vae": "diffusion_pytorch_model",
    }
    setting_files: ClassVar[Mapping[str, str]] = {
        "feature_extractor": "preprocessor_config.json",
        "image_noising_scheduler": "scheduler_config.json",
        "scheduler": "scheduler_config.json",
        "tokenizer": "tokenizer_config.json",
    }

    def check(self) -> None:
        if not {"image_encoder", "image_normalizer", "unet"} <= set(self.parts):
            return
        width = self.settings("image_encoder").get("projection_dim")
        normaliser = self.settings("image_normalizer").get("embedding_dim")
        unet = self.settings("unet")
        labels = unet.get("projection_class_embeddings_input_dim")
        if unet.get("class_embed_type") != "projection" or labels is None:
            raise DataError(f"{self.path / 'unet'}: takes no image embedding, so it is no Stable unCLIP; {SOURCES}")
        if not width == normaliser == labels / 2:
            raise DataError(
                f"{self.path}: parts of different pipelines: image_encoder gives {width} numbers, image_normalizer "
                f"expects {normaliser}, and unet {labels} (twice as many are needed); download the folder again, "
                f"{SOURCES}"
            )


ENCODER = ClipFolder("unclip", UnclipFolder)


class Unclip(LatentDiffusion):
    """Trained on noised embeddings: statistics and noise schedule are the folder's, so the foreground may be fitted
    with any encoder. Guidance leads away from zeros in place of the whole conditioning; the prompt is empty."""

    name = "unclip"
    folder_class: ClassVar[type[PipelineFolder]] = UnclipFolder
    own_encoder = ENCODER

    @classmethod
    def check(cls, config: GenerateConfig) -> None:
        """Any encoder will do."""

    @classmethod
    def space_of(cls, folder: PipelineFolder, foreground: Foreground, width: int) -> NoiseSpace:
        return noise_space(folder, width)

    @classmethod
    def load(cls, folder: PipelineFolder, width: int, precision: str, solver: str) -> Networks:
        from diffusers import AutoencoderKL

        return Networks(
            unet=load_unet(folder, precision),
            autoencoder=load_autoencoder(AutoencoderKL, folder, "vae", precision),
            scheduler=create_solver(folder.settings("scheduler"), folder.path / "scheduler", solver),
            prompt=embed_empty_prompt(folder),
        )

    def perturb(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n k"]:
        """The noised embedding with a sinusoidal code of its level appended: k = 2 d."""
        return with_level_code(super().perturb(embedding, level, noise), level)

    def predict(
        self, x: Float[Tensor, "n c h w"], time: Int[Tensor, ""], conditioning: Float[Tensor, "n k"]
    ) -> Float[Tensor, "n o h w"]:
        dtype = self.unet.dtype
        prompt = None if self.prompt is None else self.prompt.expand(len(x), -1, -1)
        labels = conditioning.to(dtype)
        output = self.network(x.to(dtype), time, encoder_hidden_states=prompt, class_labels=labels, return_dict=False)
        prediction: Tensor = output[0].float()
        return prediction


def noise_space(folder: PipelineFolder, width: int) -> NoiseSpace:
    """Mean and deviation of image embeddings and the noise schedule, from the checkpoint, as fp32 tensors."""
    from diffusers import DDPMScheduler
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path, _ = folder.weights("image_normalizer")
    try:
        tensors = load_file(path)
        mean, std = (tensors[name].float().flatten() for name in ("mean", "std"))
    except (SafetensorError, KeyError) as error:
        raise DataError(f"{path}: cannot be loaded ({error}); download it again, {SOURCES}") from error
    if not len(mean) == len(std) == width:
        raise DataError(f"{path}: has {len(mean)} numbers and the image encoder gives {width}; {SOURCES}")
    scheduler: Any = DDPMScheduler.from_config(folder.settings("image_noising_scheduler"))
    return NoiseSpace(mean, std, scheduler.alphas_cumprod.float())
