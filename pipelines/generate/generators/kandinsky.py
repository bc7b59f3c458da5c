"""Generator `kandinsky`: the decoder of Kandinsky 2.2, conditioned on the noised embedding of the image itself.

Its prior, which makes such an embedding from a text, is not needed. Equal to `KandinskyV22Pipeline`, called one image
at a time with the same embedding and noise.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.clip_folders import ClipFolder
from viewkit.pipelines.generate.generators.latent_diffusion import LatentDiffusion
from viewkit.pipelines.generate.generators.networks import Networks, load_autoencoder, load_unet
from viewkit.pipelines.generate.generators.sampling import LEARNED, create_solver
from viewkit.pipelines.weights.folder import SOURCES, PipelineFolder
from viewkit.shards.errors import DataError


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
            raise DataError(f"{self.path / 'unet'}: takes no image embedding, so it is no Kandinsky 2.2; {SOURCES}")
        if unet.get("encoder_hid_dim") != width:
            raise DataError(
                f"{self.path}: parts of different pipelines: image_encoder gives {width} numbers and unet takes "
                f"{unet.get('encoder_hid_dim')}; download the folder again, {SOURCES}"
            )


ENCODER = ClipFolder("kandinsky", KandinskyFolder, preprocessor="image_processor")


class Kandinsky(LatentDiffusion):
    """Guidance leads away from the embedding of an image of CLIP's mean colour, as the stock prior does when there is
    no negative prompt."""

    name = "kandinsky"
    folder_class = KandinskyFolder
    own_encoder = ENCODER

    @property
    def multiple(self) -> int:
        """The stock pipeline rounds other sides up."""
        return self.factor**2

    @classmethod
    def load(cls, folder: PipelineFolder, width: int, precision: str, solver: str) -> Networks:
        from diffusers import VQModel

        return Networks(
            unet=load_unet(folder, precision),
            autoencoder=load_autoencoder(VQModel, folder, "movq", precision),
            scheduler=create_solver(_settings(folder, solver), folder.path / "scheduler", solver),
        )

    @cached_property
    def empty(self) -> Float[Tensor, "1 d"]:
        """The embedding of an image of the mean colour."""
        side_px = self.encoder.preprocess.side_px
        return self.encoder.tokens_and_features(torch.zeros(1, 3, side_px, side_px, device=self.device))[1]

    def unconditional(self, conditioning: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return self.empty.expand_as(conditioning)

    def predict(
        self, x: Float[Tensor, "n c h w"], time: Int[Tensor, ""], conditioning: Float[Tensor, "n k"]
    ) -> Float[Tensor, "n o h w"]:
        dtype = self.unet.dtype
        embeds = {"image_embeds": conditioning.to(dtype)}
        output = self.network(
            x.to(dtype), time, encoder_hidden_states=None, added_cond_kwargs=embeds, return_dict=False
        )
        prediction: Tensor = output[0].float()
        return prediction

    def decode(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 3 s s"]:
        image: Tensor = self.decoder(x.to(self.autoencoder.dtype), force_not_quantize=True, return_dict=False)[0]
        return image.float() / 2 + 0.5


def _settings(folder: PipelineFolder, solver: str) -> Mapping[str, Any]:
    """The scheduler's settings. Other solvers do not take a learned variance: they would cut latents to 3 channels."""
    settings = folder.settings("scheduler")
    if solver == "checkpoint" or settings.get("variance_type") not in LEARNED:
        return settings
    return {name: value for name, value in settings.items() if name != "variance_type"}
