"""Frozen encoders behind one face: rendered views in, the last feature map out, before any pooling.

A view is rendered for the encoder, at its side and normalised with its mean and std. (The release shows it the very
tensors that are trained on, which is why its training normalises with CLIP's numbers.)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from viewkit.pipelines.models.checkpoint import checksum
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.models.weights_file import load_file_weights
from viewkit.pipelines.quality.config import FILE, QualityConfig
from viewkit.pipelines.views.policy import Colour
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PUBLISHED_SIDE_PX = {"convnext_base_w": 224}
"""Sides that GenView's code forces on a network: 7 x 7 x 1024, where the network's own 256 px would give 8 x 8."""
RANDOM = "random"


@dataclass(frozen=True)
class Network:
    """What a library gives. maps: views to [m h w k]; side_px: the network's own."""

    module: nn.Module
    maps: Callable[[Tensor], Tensor]
    side_px: int
    mean: Colour
    std: Colour


class MapEncoder:
    """A frozen network in evaluation mode: no drop path, no batch statistics, whatever the caller does.

    side_px, mean, std: what its views must look like. grid: rows and columns of its map.
    """

    def __init__(self, name: str, network: Network, *, side_px: int | None, precision: str, device: str) -> None:
        self.weights = checksum({name: value.cpu() for name, value in network.module.state_dict().items()}, "")
        self.module = network.module.to(device=device, dtype=DTYPES[precision]).eval().requires_grad_(False)
        self.name, self.precision, self.device = name, precision, device
        self.side_px = side_px or network.side_px
        self.mean, self.std = network.mean, network.std
        self._maps = network.maps
        self.grid = self._probe()

    @torch.inference_mode()
    def maps(self, views: Float[Tensor, "m 3 s s"]) -> Float32[Tensor, "m h w k"]:
        """The last stage's features, before pooling and head norm (patch tokens of a ViT: after the last norm)."""
        return self._maps(views.to(self.device, DTYPES[self.precision])).float()

    def fingerprint(self) -> Mapping[str, Any]:
        """JSON values that differ whenever the encoder would see something else."""
        return {
            "encoder": self.name,
            "weights": self.weights,
            "precision": self.precision,
            "side_px": self.side_px,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def _probe(self) -> tuple[int, int]:
        view = torch.zeros(1, 3, self.side_px, self.side_px)
        try:
            _, rows, columns, _ = self.maps(view).shape
        except (AssertionError, RuntimeError, ValueError) as error:
            what = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ConfigError(
                f"quality: encoder '{self.name}' takes no views of {self.side_px} px ({what}); leave out --side-px"
            ) from error
        return rows, columns


def create_encoder(config: QualityConfig, dataset: Dataset, weights: Path | None, device: str) -> MapEncoder:
    """The encoder a config names. weights: a .safetensors file, for names that end in ``/file``.

    Raises `ConfigError` for a name nobody knows, `DataError` when its weights are not there or do not fit.
    """
    check_file(config, weights)
    library, _, name = config.encoder.partition(":")
    model, _, tag = name.partition("/")
    if library == "estimator":
        network = _estimator(dataset)
    elif library == "timm":
        network = _timm(config.encoder, model, tag, weights)
    else:
        network = _open_clip(config.encoder, model, tag, weights)
    side_px = config.side_px or PUBLISHED_SIDE_PX.get(model)
    if library == "estimator" and side_px not in (None, network.side_px):
        raise ConfigError(f"quality: side_px is {side_px}, and the estimator takes {network.side_px}; leave it out")
    return MapEncoder(config.encoder, network, side_px=side_px, precision=config.precision, device=device)


def check_file(config: QualityConfig, weights: Path | None) -> None:
    """That a weights file is given exactly where the encoder's name asks for one, and is one that runs no code."""
    if config.takes_file and weights is None:
        raise ConfigError(f"quality: encoder '{config.encoder}' takes its weights from a file; add --weights FILE")
    if weights is None:
        return
    if not config.takes_file:
        raise ConfigError(
            f"quality: --weights is given, and encoder '{config.encoder}' has its own; name it with /{FILE}, e.g. "
            f"open_clip:convnext_base_w/{FILE}"
        )
    if weights.suffix != ".safetensors":
        raise ConfigError(f"quality: {weights} is no .safetensors file; convert it first, other formats can run code")
    if not weights.is_file():
        raise DataError(f"quality: {weights}: there is no such file; give the encoder's weights with --weights FILE")


def _estimator(dataset: Dataset) -> Network:
    estimator = Estimator.load(dataset.artifact("estimator"))
    backbone = estimator.network.backbone
    mean, std = _three(estimator.mean), _three(estimator.std)
    return Network(backbone, lambda x: as_map(backbone.tokens(x), "estimator"), estimator.side_px, mean, std)


def _timm(encoder: str, name: str, tag: str, weights: Path | None) -> Network:
    import timm

    if not timm.is_model(name.partition(".")[0]):
        raise ConfigError(f"quality: encoder is '{encoder}', and timm has no model '{name}'; see timm.list_models()")
    if tag not in ("", RANDOM, FILE):
        raise ConfigError(f"quality: encoder is '{encoder}'; after a timm model's name only /{FILE} has a meaning")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            model = timm.create_model(name, pretrained=tag == "", num_classes=0)
        except (OSError, RuntimeError, ValueError) as error:
            raise _no_weights(encoder, weights, error) from error
    if weights is not None:
        load_file_weights(model, weights)  # of a published file all but its classifier
    data = timm.data.resolve_model_data_config(model)
    mean, std = _three(data["mean"]), _three(data["std"])
    return Network(model, lambda x: trunk_map(model, x, encoder), data["input_size"][-1], mean, std)


def _open_clip(encoder: str, name: str, tag: str, weights: Path | None) -> Network:
    import open_clip
    from safetensors import SafetensorError

    if name not in open_clip.list_models():
        raise ConfigError(f"quality: encoder is '{encoder}', and open_clip has no model '{name}'")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in (RANDOM, FILE, *tags):
        raise ConfigError(
            f"quality: encoder is '{encoder}'; weights of {name} are {', '.join(tags) or 'not published'}, or {FILE}"
        )
    source = str(weights) if weights else (None if tag == RANDOM else tag)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            visual = open_clip.create_model(name, pretrained=source).visual
        except (OSError, RuntimeError, ValueError, SafetensorError) as error:
            raise _no_weights(encoder, weights, error) from error
    seen = visual.preprocess_cfg
    side_px = seen["size"] if isinstance(seen["size"], int) else seen["size"][0]
    mean, std = _three(seen["mean"]), _three(seen["std"])
    trunk = getattr(visual, "trunk", None)
    if trunk is not None:
        return Network(trunk, lambda x: trunk_map(trunk, x, encoder), side_px, mean, std)
    if not hasattr(visual, "output_tokens"):
        raise ConfigError(f"quality: encoder is '{encoder}', whose image tower gives no feature map; name another")
    visual.output_tokens = True
    return Network(visual, lambda x: as_map(visual(x)[1], encoder), side_px, mean, std)


def trunk_map(trunk: Any, x: Float[Tensor, "m 3 s s"], encoder: str) -> Float[Tensor, "m h w k"]:
    """The last map of a timm network, whatever order its axes have."""
    features = trunk.forward_features(x)
    if features.ndim == 3:
        return as_map(features[:, trunk.num_prefix_tokens :], encoder)
    return features if getattr(trunk, "output_fmt", "NCHW") == "NHWC" else features.permute(0, 2, 3, 1)


def as_map(tokens: Float[Tensor, "m t k"], encoder: str) -> Float[Tensor, "m h w k"]:
    """Tokens in reading order as a square map."""
    side = round(tokens.shape[1] ** 0.5)
    if side * side != tokens.shape[1]:
        raise DataError(f"quality: encoder '{encoder}' gives {tokens.shape[1]} tokens, which form no square")
    return tokens.unflatten(1, (side, side))


def _three(values: Any) -> Colour:
    red, green, blue = values
    return float(red), float(green), float(blue)


def _no_weights(encoder: str, weights: Path | None, error: Exception) -> DataError:
    first = str(error).strip().splitlines()[0]
    if weights is not None:
        return DataError(f"quality: {weights}: these are no weights of '{encoder}' ({first}); give those of this model")
    return DataError(
        f"quality: encoder '{encoder}': its weights are not here and cannot be fetched ({first}); download them once "
        f"on a machine with a connection and give the .safetensors file with --weights and /{FILE} in the encoder's "
        "name, or use --encoder estimator"
    )
