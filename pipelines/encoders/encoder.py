"""The one interface of frozen encoders: views in; patch tokens and features out, from one forward pass.

The encoder prepares its views itself, in one of two ways: `prepare_images` takes whole images, as CLIP's own
preprocessing does (PIL, bicubic), and `render` the recipes of views, as a trainer renders them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Shaped, UInt8
from torch import Tensor, nn

from viewkit.pipelines.encoders.names import Precision
from viewkit.pipelines.encoders.preprocess import Preprocess
from viewkit.pipelines.models.checkpoint import checksum
from viewkit.pipelines.views.policy import Colour
from viewkit.pipelines.views.render.render import render
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.spans import spanned

DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ZERO_MEAN, UNIT_STD = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
"""Views rendered with these stay in 0 ... 1."""


class FeatureExtractor:
    """A network and the views it takes: [n 3 side_px side_px], normalised by mean and std, in; one row of numbers per
    view out.

    model: in evaluation mode, which is the caller's duty: a probe during a training wraps the network as it is.
    """

    def __init__(self, model: nn.Module, side_px: int, mean: Colour, std: Colour, device: str = "cpu") -> None:
        self.model: Any = model.to(device)
        self.side_px, self.mean, self.std, self.device = side_px, mean, std, device

    @spanned("embed", is_unit=True)
    @torch.inference_mode()
    def features(self, views: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """In fp32, on the extractor's device."""
        found: Tensor = self.model(views.to(self.device))
        return found.float()

    def render(
        self,
        images: Sequence[UInt8[Tensor, "_h _w 3"]],
        recipes: Float32[np.ndarray, "m p"],
        index: Int[Any, " m"],
    ) -> Float32[Tensor, "m 3 s s"]:
        """The views of these recipes, each of image number `index`."""
        return render(images, recipes, index, side_px=self.side_px, mean=self.mean, std=self.std)


@dataclass(frozen=True)
class EncoderRequest:
    """What an encoder is opened from, see `open.open_encoder`."""

    name: str
    dataset: Dataset
    weights: Path | None = None
    encoder_weights: Path | None = None
    device: str = "cpu"
    precision: Precision = "fp32"
    side_px: int | None = None


class Encoder(FeatureExtractor, ABC):
    """A frozen network with patch tokens; in evaluation mode and without gradients.

    name: as `--encoder` has it. preprocess: of whole images. width: d, of the features. grid: rows and columns of the
    tokens.
    """

    def __init__(
        self, model: nn.Module, preprocess: Preprocess, *, name: str, device: str, precision: Precision = "fp32"
    ) -> None:
        frozen = model.to(DTYPES[precision]).eval().requires_grad_(False)
        super().__init__(frozen, preprocess.side_px, preprocess.mean, preprocess.std, device)
        self.name, self.preprocess = name, preprocess
        self.precision, self.dtype = precision, DTYPES[precision]

    @abstractmethod
    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        """Tokens and features of views on the encoder's device and in its precision.

        Tokens are those of the patches after the last norm, in reading order, without class or register tokens; for a
        convolutional network the positions of its last map, before pooling and head norm.
        """

    @spanned("embed", is_unit=True)
    @torch.inference_mode()
    def tokens_and_features(
        self, views: Float[Tensor, "n 3 s s"]
    ) -> tuple[Float32[Tensor, "n t k"], Float32[Tensor, "n d"]]:
        """Both of one forward pass, in fp32, on the encoder's device."""
        tokens, features = self.forward(views.to(self.device, self.dtype))
        return tokens.float(), features.float()

    def features(self, views: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        return self.tokens_and_features(views)[1]

    def tokens(self, views: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n t k"]:
        return self.tokens_and_features(views)[0]

    def maps(self, views: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n h w k"]:
        """The tokens as a map."""
        return self.tokens(views).unflatten(1, self.grid)

    @spanned("prepare images")
    def prepare_images(self, images: Sequence[Shaped[np.ndarray, "_ _ 3"]]) -> Float32[Tensor, "n 3 s s"]:
        """Views of whole uint8 RGB images of any sizes, see `Preprocess`; on the encoder's device."""
        return torch.stack([self.preprocess(image) for image in images]).to(self.device)

    def encode_images(
        self, images: Sequence[Shaped[np.ndarray, "_ _ 3"]]
    ) -> tuple[Float32[Tensor, "n t k"], Float32[Tensor, "n d"]]:
        """Tokens and features of whole images, in one forward pass."""
        return self.tokens_and_features(self.prepare_images(images))

    @property
    def width(self) -> int:
        return self._shape[1]

    @property
    def grid(self) -> tuple[int, int]:
        return self._shape[0]

    @cached_property
    def _shape(self) -> tuple[tuple[int, int], int]:
        """Grid of the tokens and width of the features, of a view of zeros.

        Raises `ConfigError` where the network takes no views of this side, `DataError` where tokens form no square.
        """
        try:
            tokens, features = self.tokens_and_features(torch.zeros(1, 3, self.side_px, self.side_px))
        except (AssertionError, RuntimeError, ValueError) as error:
            what = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConfigError(
                f"encoder '{self.name}' takes no views of {self.side_px} px ({what}); leave out --side-px"
            ) from error
        side = round(tokens.shape[1] ** 0.5)
        if side * side != tokens.shape[1]:
            raise DataError(f"encoder '{self.name}' gives {tokens.shape[1]} tokens, which form no square; use another")
        return (side, side), features.shape[1]

    def fingerprint(self) -> Mapping[str, Any]:
        """JSON values that differ whenever tokens or features of the same image would.

        weights: `checkpoint.checksum` of the network as it runs, XXH3-64 over names, types, shapes and bytes, the one
        hash that guards every tensor file of a dataset. It tells mix-ups, not forgeries, so it need not be
        cryptographic, and stays cheap for encoders of gigabytes, which every worker loads. Files from outside are in
        identities with their SHA-256, see `open.encoder_inputs`.
        """
        weights = {name: tensor.cpu() for name, tensor in self.model.state_dict().items()}
        return {
            "encoder": self.name,
            "weights": checksum(weights, ""),
            "precision": self.precision,
            "resize_px": self.preprocess.resize_px,
            "resample": self.preprocess.resample.name.lower(),
            "side_px": self.side_px,
            "mean": list(self.mean),
            "std": list(self.std),
        }


def trunk_outputs(trunk: Any, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
    """Tokens and pooled features of a timm network, whatever order the axes of its last map have."""
    last = trunk.forward_features(x)
    features = trunk.forward_head(last, pre_logits=True)
    if last.ndim == 3:
        return last[:, getattr(trunk, "num_prefix_tokens", 0) :], features
    channels_last = getattr(trunk, "output_fmt", "NCHW") == "NHWC"
    return last.flatten(1, 2) if channels_last else last.flatten(2).mT, features  # n (h w) k
