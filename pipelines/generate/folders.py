"""The folders of Kandinsky 2.2 and of Stable Diffusion with an IP-Adapter."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from viewkit.pipelines.generate.pipeline_folder import HELP, PipelineFolder, missing_weights
from viewkit.shards.errors import DataError

KANDINSKY_ENCODER_PARTS = ("image_encoder", "image_processor")
IP_ADAPTER_ENCODER_PARTS = ("models/image_encoder",)


class KandinskyFolder(PipelineFolder):
    """The decoder's repository, with `image_encoder` and `image_processor` of the prior's beside its parts."""

    title = "Kandinsky 2.2"
    classes = ("KandinskyV22Pipeline",)
    weight_files: ClassVar[Mapping[str, str]] = {
        "image_encoder": "model",
        "movq": "diffusion_pytorch_model",
        "unet": "diffusion_pytorch_model",
    }
    setting_files: ClassVar[Mapping[str, str]] = {
        "image_processor": "preprocessor_config.json",
        "scheduler": "scheduler_config.json",
    }

    def check(self) -> None:
        if not {"image_encoder", "unet"} <= set(self.parts):
            return
        width, unet = self.settings("image_encoder").get("projection_dim"), self.settings("unet")
        if unet.get("encoder_hid_dim_type") != "image_proj" or unet.get("addition_embed_type") != "image":
            raise DataError(f"{self.path / 'unet'}: takes no image embedding, so it is no Kandinsky 2.2; {HELP}")
        if unet.get("encoder_hid_dim") != width:
            raise DataError(
                f"{self.path}: parts of different pipelines: image_encoder gives {width} numbers and unet takes "
                f"{unet.get('encoder_hid_dim')}; download the folder anew, {HELP}"
            )


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
                f"{self.path / 'unet'}: takes {channels} channels, 4 are needed: no inpainting model; {HELP}"
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
