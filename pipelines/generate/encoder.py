"""The common face of image encoders: patch tokens, which tell foreground, and an embedding, from one forward pass."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from viewkit.pipelines.generate.preprocess import Preprocess
from viewkit.shards.errors import DataError

DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Encoder(ABC):
    """preprocess: from an image to `forward`'s input. width: d, of the embedding. grid: rows and columns of tokens."""

    preprocess: Preprocess
    width: int
    grid: tuple[int, int]

    def __init__(self, model: Any, device: str, dtype: torch.dtype = torch.float32) -> None:
        self.model: nn.Module = model.to(device=device, dtype=dtype).eval().requires_grad_(False)
        self.device = device
        self.dtype = dtype

    def tokens_and_embedding(
        self, images: Sequence[Shaped[np.ndarray, "_ _ 3"]]
    ) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        """One forward pass over uint8 RGB images of any sizes; both results in fp32, on the encoder's device.

        Tokens are patch tokens after the last norm, in reading order, without class or register tokens.
        """
        return self.look(self.inputs(images))

    def inputs(self, images: Sequence[Shaped[np.ndarray, "_ _ 3"]]) -> Float[Tensor, "n 3 s s"]:
        """What the network is shown of uint8 RGB images, in fp32, on the encoder's device."""
        return torch.stack([self.preprocess(image) for image in images]).to(self.device)

    @torch.inference_mode()
    def look(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        """Tokens and embeddings of what `inputs` gave."""
        tokens, embedding = self.forward(x.to(self.dtype))
        return tokens.float(), embedding.float()

    @abstractmethod
    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]: ...

    @abstractmethod
    def fingerprint(self) -> Mapping[str, Any]:
        """JSON values that differ whenever the encoder would see something else."""


def trunk_outputs(trunk: Any, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
    """Tokens and pooled features of a timm network; the positions of the last map are the tokens of a ResNet."""
    features = trunk.forward_features(x)
    embedding = trunk.forward_head(features, pre_logits=True)
    if features.ndim == 4:
        return features.flatten(2).mT, embedding  # n (h w) k
    return features[:, trunk.num_prefix_tokens :], embedding


def probe(encoder: Encoder, side_px: int) -> tuple[int, tuple[int, int]]:
    """Width of the embedding and the grid of the tokens, seen on a black image."""
    tokens, embedding = encoder.tokens_and_embedding([np.zeros((side_px, side_px, 3), np.uint8)])
    side = round(tokens.shape[1] ** 0.5)
    if side * side != tokens.shape[1]:
        raise DataError(f"foreground: the encoder gives {tokens.shape[1]} tokens, which form no square")
    return embedding.shape[1], (side, side)


def seen_as(preprocess: Preprocess) -> dict[str, Any]:
    """What a fingerprint says of how images are shown."""
    return {"side_px": preprocess.side_px, "mean": list(preprocess.mean), "std": list(preprocess.std)}


def three(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean or deviation of the three channels."""
    r, g, b = values
    return float(r), float(g), float(b)
