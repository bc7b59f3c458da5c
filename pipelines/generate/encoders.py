"""Image encoders behind one face: patch tokens, which tell foreground, and an embedding, from one forward pass."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image
from torch import Tensor, nn

from viewkit.pipelines.generate.config import Precision
from viewkit.pipelines.generate.preprocess import Preprocess
from viewkit.pipelines.generate.unclip_folder import ENCODER_PARTS, UnclipFolder, load_part
from viewkit.pipelines.models.estimator import Estimator
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

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

    @torch.inference_mode()
    def tokens_and_embedding(
        self, images: Sequence[Shaped[np.ndarray, "_ _ 3"]]
    ) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        """One forward pass over uint8 RGB images of any sizes; both results in fp32, on the encoder's device.

        Tokens are patch tokens after the last norm, in reading order, without class or register tokens.
        """
        x = torch.stack([self.preprocess(image) for image in images]).to(self.device, self.dtype)
        tokens, embedding = self.forward(x)
        return tokens.float(), embedding.float()

    @abstractmethod
    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]: ...

    @abstractmethod
    def fingerprint(self) -> Mapping[str, Any]:
        """JSON values that differ whenever the encoder would see something else."""


class EstimatorEncoder(Encoder):
    """The project's own estimator: tokens and features of its backbone. Needs no downloaded weights."""

    def __init__(self, dataset: Dataset, device: str) -> None:
        artifact = dataset.artifact("estimator")
        estimator = Estimator.load(artifact, device)
        self.digest = artifact.digest
        super().__init__(estimator.network.backbone.trunk, device)
        self.preprocess = Preprocess(
            estimator.side_px, estimator.side_px, _three(estimator.mean), _three(estimator.std)
        )
        self.width, self.grid = _probe(self, estimator.side_px)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        return trunk_outputs(self.model, x)

    def fingerprint(self) -> Mapping[str, Any]:
        return {"encoder": "estimator", "digest": self.digest}


class TimmEncoder(Encoder):
    """A ViT of timm by name, e.g. ``vit_small_patch14_dinov2.lvd142m``; ``NAME/random`` is untrained, for trials."""

    def __init__(self, name: str, device: str) -> None:
        import timm

        self.name, _, tag = name.partition("/")
        if not timm.is_model(self.name.partition(".")[0]):
            raise ConfigError(f"encoder is 'timm:{name}', and timm has no model '{self.name}'; see timm.list_models()")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                model = timm.create_model(self.name, pretrained=tag != "random", num_classes=0)
            except (OSError, RuntimeError, ValueError) as error:
                raise _no_weights(f"timm:{name}", error) from error
        if not hasattr(model, "num_prefix_tokens"):
            raise ConfigError(f"encoder is 'timm:{name}', which has no patch tokens; name a ViT")
        super().__init__(model, device)
        data = timm.data.resolve_model_data_config(model)
        side_px = data["input_size"][-1]
        self.preprocess = Preprocess(side_px, side_px, _three(data["mean"]), _three(data["std"]))
        self.width, self.grid = _probe(self, side_px)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        return trunk_outputs(self.model, x)

    def fingerprint(self) -> Mapping[str, Any]:
        return {"encoder": f"timm:{self.name}", "weights": weights_digest(self.model), **_seen(self.preprocess)}


class OpenClipEncoder(Encoder):
    """The image tower of an open_clip model, e.g. ``ViT-H-14/laion2b_s32b_b79k``; ``MODEL/random`` is untrained."""

    def __init__(self, name: str, device: str) -> None:
        import open_clip

        self.name = name
        model_name, _, tag = name.partition("/")
        if model_name not in open_clip.list_models():
            raise ConfigError(f"encoder is 'open_clip:{name}', and open_clip has no model '{model_name}'")
        tags = open_clip.list_pretrained_tags_by_model(model_name)
        if tag != "random" and tag not in tags:
            raise ConfigError(
                f"encoder is 'open_clip:{name}'; weights of {model_name} are {', '.join(tags) or 'not published'}"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                model = open_clip.create_model(model_name, pretrained=None if tag == "random" else tag)
            except (OSError, RuntimeError, ValueError) as error:
                raise _no_weights(f"open_clip:{name}", error) from error
        visual = model.visual
        if not hasattr(visual, "output_tokens"):
            raise ConfigError(f"encoder is 'open_clip:{name}', whose image tower has no patch tokens; name a ViT")
        visual.output_tokens = True
        super().__init__(visual, device)
        seen = visual.preprocess_cfg
        side_px = seen["size"] if isinstance(seen["size"], int) else seen["size"][0]
        self.preprocess = Preprocess(side_px, side_px, _three(seen["mean"]), _three(seen["std"]))
        self.width, self.grid = _probe(self, side_px)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        embedding, tokens = self.model(x)
        return tokens, embedding

    def fingerprint(self) -> Mapping[str, Any]:
        return {"encoder": f"open_clip:{self.name}", "weights": weights_digest(self.model), **_seen(self.preprocess)}


class UnclipEncoder(Encoder):
    """The image encoder of a Stable unCLIP folder: its embedding is what the generator is conditioned on."""

    def __init__(self, folder: UnclipFolder, device: str, precision: Precision) -> None:
        from transformers import CLIPVisionModelWithProjection

        model = load_part(CLIPVisionModelWithProjection, folder, "image_encoder", dtype=DTYPES[precision])
        super().__init__(model, device, DTYPES[precision])
        seen = folder.settings("feature_extractor")
        self.precision = precision
        self.digest = folder.digests()[f"weights/image_encoder/{folder.weights('image_encoder')[0].name}"]
        self.preprocess = Preprocess(
            _pixels(seen["size"], "shortest_edge"),
            _pixels(seen["crop_size"], "height"),
            _three(seen["image_mean"]),
            _three(seen["image_std"]),
            Image.Resampling(seen.get("resample", Image.Resampling.BICUBIC)),
        )
        if self.preprocess.side_px != model.config.image_size:
            raise DataError(
                f"{folder.path}: feature_extractor crops {self.preprocess.side_px} px, and image_encoder takes "
                f"{model.config.image_size} px; download the folder anew"
            )
        self.width, self.grid = _probe(self, self.preprocess.side_px)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        model: Any = self.model
        out = model(x)
        # last_hidden_state comes before the last norm; the embedding is the projection of the normed class token
        return model.vision_model.post_layernorm(out.last_hidden_state[:, 1:]), out.image_embeds

    def fingerprint(self) -> Mapping[str, Any]:
        return {"encoder": "unclip", "weights": self.digest, "precision": self.precision, **_seen(self.preprocess)}


def create_encoder(name: str, dataset: Dataset, weights: Path | None, device: str, precision: Precision) -> Encoder:
    """The encoder a config names. weights: the Stable unCLIP folder, for ``unclip``.

    Raises `ConfigError` for a name nobody knows, `DataError` when its weights are not there.
    """
    if name == "estimator":
        return EstimatorEncoder(dataset, device)
    if name == "unclip":
        return UnclipEncoder(UnclipFolder(needed(weights), ENCODER_PARTS), device, precision)
    library, _, model = name.partition(":")
    return TimmEncoder(model, device) if library == "timm" else OpenClipEncoder(model, device)


def needed(weights: Path | None) -> Path:
    """The folder given with --weights; `ConfigError` when there is none."""
    if weights is None:
        raise ConfigError("generate: Stable unCLIP needs its weights; add --weights FOLDER (docs/generators.md)")
    return weights


def trunk_outputs(trunk: Any, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
    """Tokens and pooled features of a timm network; the positions of the last map are the tokens of a ResNet."""
    features = trunk.forward_features(x)
    embedding = trunk.forward_head(features, pre_logits=True)
    if features.ndim == 4:
        return features.flatten(2).mT, embedding  # n (h w) k
    return features[:, trunk.num_prefix_tokens :], embedding


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over names and values of all weights."""
    hasher = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        hasher.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return hasher.hexdigest()


def _probe(encoder: Encoder, side_px: int) -> tuple[int, tuple[int, int]]:
    """Width of the embedding and the grid of the tokens, seen on a black image."""
    tokens, embedding = encoder.tokens_and_embedding([np.zeros((side_px, side_px, 3), np.uint8)])
    side = round(tokens.shape[1] ** 0.5)
    if side * side != tokens.shape[1]:
        raise DataError(f"foreground: the encoder gives {tokens.shape[1]} tokens, which form no square")
    return embedding.shape[1], (side, side)


def _seen(preprocess: Preprocess) -> dict[str, Any]:
    return {"side_px": preprocess.side_px, "mean": list(preprocess.mean), "std": list(preprocess.std)}


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    r, g, b = values
    return float(r), float(g), float(b)


def _pixels(size: int | Mapping[str, int], name: str) -> int:
    return size if isinstance(size, int) else size[name]


def _no_weights(name: str, error: Exception) -> DataError:
    first = str(error).strip().splitlines()[0]
    return DataError(
        f"encoder '{name}': its weights are not here and cannot be fetched ({first}); download them once on a machine "
        "with a connection, or use --encoder estimator"
    )
