"""A folder with Stable unCLIP in diffusers' layout, here or on the Hugging Face hub."""

from collections.abc import Mapping
from typing import ClassVar

from viewkit.pipelines.generate.pipeline_folder import HELP, PipelineFolder
from viewkit.shards.errors import DataError

ENCODER_PARTS = ("image_encoder", "feature_extractor")
"""Parts that the image encoder alone needs."""


class UnclipFolder(PipelineFolder):
    """path: the folder, or ``org/name@commit``."""

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
            raise DataError(f"{self.path / 'unet'}: takes no image embedding, so it is no Stable unCLIP; {HELP}")
        if not width == normaliser == labels / 2:
            raise DataError(
                f"{self.path}: parts of different pipelines: image_encoder gives {width} numbers, image_normalizer "
                f"expects {normaliser}, and unet {labels} (twice as many are needed); download the folder anew, {HELP}"
            )
