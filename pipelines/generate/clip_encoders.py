"""CLIP's image encoders in the folders of generators: what foreground and conditioning can share."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxtyping import Float
from PIL import Image
from torch import Tensor

from viewkit.pipelines.generate.config import Precision
from viewkit.pipelines.generate.encoder import DTYPES, Encoder, probe, seen_as, three
from viewkit.pipelines.generate.folders import (
    IP_ADAPTER_ENCODER_PARTS,
    KANDINSKY_ENCODER_PARTS,
    IpAdapterFolder,
    KandinskyFolder,
)
from viewkit.pipelines.generate.pipeline_folder import Folder, load_part
from viewkit.pipelines.generate.preprocess import Preprocess
from viewkit.pipelines.generate.unclip_folder import ENCODER_PARTS, UnclipFolder
from viewkit.shards.errors import DataError

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class ClipFolderEncoder(Encoder):
    """A CLIP image encoder of transformers in a folder of diffusers' layout; its embedding conditions a generator.

    preprocessor: part that says how images are prepared, where the folder has one; else as CLIP does it.
    """

    def __init__(
        self,
        folder: Folder,
        device: str,
        precision: Precision,
        *,
        name: str,
        part: str = "image_encoder",
        preprocessor: str | None = "feature_extractor",
    ) -> None:
        from transformers import CLIPVisionModelWithProjection

        model = load_part(CLIPVisionModelWithProjection, folder, part, dtype=DTYPES[precision])
        super().__init__(model, device, DTYPES[precision])
        self.name, self.precision = name, precision
        self.digest = folder.digests()[f"weights/{part}/{folder.weights(part)[0].name}"]
        settings = folder.settings(preprocessor) if preprocessor else {}
        self.preprocess = clip_preprocess(settings, model.config.image_size)
        if self.preprocess.side_px != model.config.image_size:
            raise DataError(
                f"{folder.path}: {preprocessor} crops {self.preprocess.side_px} px, and {part} takes "
                f"{model.config.image_size} px; download the folder anew"
            )
        self.width, self.grid = probe(self, self.preprocess.side_px)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        model: Any = self.model
        out = model(x)
        # last_hidden_state comes before the last norm; the embedding is the projection of the normed class token
        return model.vision_model.post_layernorm(out.last_hidden_state[:, 1:]), out.image_embeds

    def fingerprint(self) -> Mapping[str, Any]:
        return {"encoder": self.name, "weights": self.digest, "precision": self.precision, **seen_as(self.preprocess)}


class UnclipEncoder(ClipFolderEncoder):
    """The image encoder of a Stable unCLIP folder: its embedding is what the generator is conditioned on."""

    def __init__(self, folder: Folder, device: str, precision: Precision) -> None:
        super().__init__(folder, device, precision, name="unclip")


class KandinskyEncoder(ClipFolderEncoder):
    """ViT-bigG/14 of a Kandinsky 2.2 folder."""

    def __init__(self, folder: Folder, device: str, precision: Precision) -> None:
        super().__init__(folder, device, precision, name="kandinsky", preprocessor="image_processor")


class IpAdapterEncoder(ClipFolderEncoder):
    """The image encoder of an IP-Adapter folder, ViT-H/14 with the published ones for Stable Diffusion 1.5."""

    def __init__(self, folder: Folder, device: str, precision: Precision) -> None:
        super().__init__(folder, device, precision, name="ip-adapter", part="models/image_encoder", preprocessor=None)


FOLDER_ENCODERS: dict[str, Callable[[Folder, str, Precision], Encoder]] = {
    "unclip": UnclipEncoder,
    "kandinsky": KandinskyEncoder,
    "ip-adapter": IpAdapterEncoder,
}


def encoder_folder(name: str, path: Path) -> Folder:
    """The part of a generator's folder that its image encoder needs."""
    if name == "kandinsky":
        return KandinskyFolder(path, KANDINSKY_ENCODER_PARTS)
    if name == "ip-adapter":
        return IpAdapterFolder(path, IP_ADAPTER_ENCODER_PARTS)
    return UnclipFolder(path, ENCODER_PARTS)


def clip_preprocess(settings: Mapping[str, Any], side_px: int) -> Preprocess:
    """From a `preprocessor_config.json`; what it does not say is as in CLIP, at `side_px`."""
    return Preprocess(
        _pixels(settings.get("size", side_px), "shortest_edge"),
        _pixels(settings.get("crop_size", side_px), "height"),
        three(settings.get("image_mean", CLIP_MEAN)),
        three(settings.get("image_std", CLIP_STD)),
        Image.Resampling(settings.get("resample", Image.Resampling.BICUBIC)),
    )


def _pixels(size: int | Mapping[str, int], name: str) -> int:
    return size if isinstance(size, int) else size[name]
