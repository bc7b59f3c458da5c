"""Generator `ip-adapter`: Stable Diffusion 1.x with an IP-Adapter, on the noised embedding of the image, no text.

Equal to `StableDiffusionPipeline` with the adapter loaded, called one image at a time with the empty prompt and the
same embedding and noise. No safety checker is loaded: those of the pipelines replace some images with black ones.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.clip_folders import ClipFolder
from viewkit.pipelines.generate.generators.latent_diffusion import LatentDiffusion
from viewkit.pipelines.generate.generators.networks import Networks, embed_empty_prompt, load_autoencoder, load_unet
from viewkit.pipelines.generate.generators.sampling import create_solver
from viewkit.pipelines.weights.folder import SOURCES, PipelineFolder, missing_weights
from viewkit.shards.errors import DataError

TOKENS = 4
"""Tokens into which a plain adapter projects an embedding."""


class IpAdapterFolder(PipelineFolder):
    """A Stable Diffusion 1.x or 2.x pipeline, with the adapter and its image encoder in the folder `models`.

    adapter: the one safetensors file directly in `models`.
    """

    title = "Stable Diffusion with IP-Adapter"
    classes = ("StableDiffusionPipeline",)
    weight_files: ClassVar[Mapping[str, str]] = {
        "models/image_encoder": "model",
        "text_encoder": "model",
        "unet": "diffusion_pytorch_model",
        "vae": "diffusion_pytorch_model",
    }
    setting_files: ClassVar[Mapping[str, str]] = {
        "scheduler": "scheduler_config.json",
        "tokenizer": "tokenizer_config.json",
    }

    def __init__(self, path: Path, parts: Iterable[str] | None = None) -> None:
        super().__init__(path, parts)
        if "unet" in self.parts:
            self.adapter = self._adapter()
            self.files.append(self.adapter)

    def check(self) -> None:
        if "unet" in self.parts and (channels := self.settings("unet").get("in_channels")) != 4:
            raise DataError(
                f"{self.path / 'unet'}: takes {channels} channels, 4 are needed: no inpainting model; {SOURCES}"
            )

    def _adapter(self) -> Path:
        found = sorted(self.path.joinpath("models").glob("*.safetensors"))
        if not found:
            raise missing_weights(self.path / "models", "ip-adapter_sd15.safetensors")
        if len(found) > 1:
            raise DataError(
                f"{self.path / 'models'}: holds {len(found)} adapters ({', '.join(path.name for path in found)}); keep "
                "one, e.g. ip-adapter_sd15.safetensors"
            )
        return found[0]


ENCODER = ClipFolder("ip-adapter", IpAdapterFolder, part="models/image_encoder", preprocessor=None)


class IpAdapter(LatentDiffusion):
    """Guidance leads away from an embedding of zeros, as in the stock pipeline; the prompt is empty on both sides."""

    name = "ip-adapter"
    folder_class = IpAdapterFolder
    own_encoder = ENCODER

    @classmethod
    def load(cls, folder: PipelineFolder, width: int, precision: str, solver: str) -> Networks:
        from diffusers import AutoencoderKL

        assert isinstance(folder, IpAdapterFolder)
        unet = load_unet(folder, precision)
        autoencoder = load_autoencoder(AutoencoderKL, folder, "vae", precision)
        add_adapter(unet, folder, width)
        return Networks(
            unet=unet,
            autoencoder=autoencoder,
            scheduler=create_solver(folder.settings("scheduler"), folder.path / "scheduler", solver),
            prompt=embed_empty_prompt(folder),
        )

    def predict(
        self, x: Float[Tensor, "n c h w"], time: Int[Tensor, ""], conditioning: Float[Tensor, "n k"]
    ) -> Float[Tensor, "n o h w"]:
        assert self.prompt is not None
        dtype = self.unet.dtype
        output = self.network(
            x.to(dtype),
            time,
            encoder_hidden_states=self.prompt.expand(len(x), -1, -1),
            added_cond_kwargs={"image_embeds": [conditioning.to(dtype)[:, None]]},  # n 1 d
            return_dict=False,
        )
        prediction: Tensor = output[0].float()
        return prediction


def add_adapter(unet: Any, folder: IpAdapterFolder, width: int) -> None:
    """Load the folder's adapter into the network. width: of the image encoder's embedding.

    `DataError` for an adapter of another kind (for faces, or "plus", which reads patch tokens) or another network.
    """
    from diffusers import StableDiffusionPipeline

    adapter = read_adapter(folder.adapter)
    projection = adapter["image_proj"].get("proj.weight")
    if projection is None:
        raise DataError(
            f"{folder.adapter}: an adapter of another kind; one that projects the image's embedding is needed, e.g. "
            f"ip-adapter_sd15.safetensors; {SOURCES}"
        )
    wanted = (TOKENS * unet.config.cross_attention_dim, width)
    if tuple(projection.shape) != wanted:
        raise DataError(
            f"{folder.adapter}: projects {projection.shape[1]} numbers to {projection.shape[0]}, and its image encoder "
            f"and unet need {wanted[1]} to {wanted[0]}; take the adapter of this Stable Diffusion, {SOURCES}"
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
        raise DataError(f"{folder.adapter}: does not fit the unet beside it ({first}); {SOURCES}") from error
    unet.to(unet.dtype).eval().requires_grad_(False)


def read_adapter(path: Path) -> dict[str, dict[str, Tensor]]:
    """The tensors of an adapter's file in its two groups, ``image_proj`` and ``ip_adapter``."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be read ({error}); download it again, {SOURCES}") from error
    groups: dict[str, dict[str, Tensor]] = {"image_proj": {}, "ip_adapter": {}}
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        if group not in groups:
            raise DataError(f"{path}: holds the tensor {name}, so it is no IP-Adapter; {SOURCES}")
        groups[group][rest] = tensor
    return groups
