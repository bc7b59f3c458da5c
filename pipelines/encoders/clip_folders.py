"""CLIP's image encoders in the folders of generators: what foreground and conditioning can share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float
from PIL import Image
from torch import Tensor

from viewkit.pipelines.encoders.encoder import DTYPES, Encoder, EncoderRequest
from viewkit.pipelines.encoders.names import Precision
from viewkit.pipelines.encoders.preprocess import Preprocess
from viewkit.pipelines.views.policies import CLIP_MEAN, CLIP_STD
from viewkit.pipelines.views.policy import colour
from viewkit.pipelines.weights.folder import PipelineFolder, load_part
from viewkit.shards.errors import DataError


@dataclass(frozen=True)
class ClipFolder:
    """Where a generator's folder keeps its CLIP image encoder; a generator's card names one of these.

    name: as `--encoder` has it. part: subfolder of the network. preprocessor: subfolder that says how images are
    prepared, where the folder has one; else they are prepared as for CLIP.
    """

    name: str
    folder: type[PipelineFolder]
    part: str = "image_encoder"
    preprocessor: str | None = "feature_extractor"

    def digests(self, weights: Path) -> dict[str, str]:
        """SHA-256 of the files that the encoder reads, by name."""
        return self._open(weights).digests()

    def create(self, weights: Path, device: str, precision: Precision) -> "ClipFolderEncoder":
        """weights: the generator's folder. `DataError` where it lacks the encoder, or holds another one."""
        return ClipFolderEncoder(self, self._open(weights), device, precision)

    def __call__(self, asked: EncoderRequest) -> "ClipFolderEncoder":
        """As `encoders.open` opens every encoder."""
        assert asked.weights is not None  # `check_files` has asked for it
        return self.create(asked.weights, asked.device, asked.precision)

    def _open(self, weights: Path) -> PipelineFolder:
        """The folder, with only the encoder's parts checked."""
        return self.folder(weights, (self.part,) if self.preprocessor is None else (self.part, self.preprocessor))


class ClipFolderEncoder(Encoder):
    """A CLIP image encoder of transformers in a folder of diffusers' layout; its embedding conditions a generator."""

    def __init__(self, where: ClipFolder, folder: PipelineFolder, device: str, precision: Precision) -> None:
        from transformers import CLIPVisionModelWithProjection

        part, preprocessor = where.part, where.preprocessor
        model = load_part(CLIPVisionModelWithProjection, folder, part, dtype=DTYPES[precision])
        side_px = model.config.image_size
        preprocess = clip_preprocess(folder.settings(preprocessor) if preprocessor else {}, side_px)
        if preprocess.side_px != side_px:
            raise DataError(
                f"{folder.path}: {preprocessor} crops {preprocess.side_px} px, and {part} takes {side_px} px; download "
                "the folder again"
            )
        super().__init__(model, preprocess, name=where.name, device=device, precision=precision)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        out = self.model(x)
        # last_hidden_state comes before the last norm; the embedding is the projection of the normed class token
        return self.model.vision_model.post_layernorm(out.last_hidden_state[:, 1:]), out.image_embeds


def clip_preprocess(settings: Mapping[str, Any], side_px: int) -> Preprocess:
    """From a `preprocessor_config.json`; what it does not say is as in CLIP, at `side_px`."""
    return Preprocess(
        _pixels(settings.get("size", side_px), "shortest_edge"),
        _pixels(settings.get("crop_size", side_px), "height"),
        colour(settings.get("image_mean", CLIP_MEAN)),
        colour(settings.get("image_std", CLIP_STD)),
        Image.Resampling(settings.get("resample", Image.Resampling.BICUBIC)),
    )


def _pixels(size: int | Mapping[str, int], name: str) -> int:
    return size if isinstance(size, int) else size[name]
