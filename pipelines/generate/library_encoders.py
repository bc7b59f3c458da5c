"""Encoders of timm and open_clip, by name, with published weights, weights from a file, or none."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.generate.encoder import Encoder, probe, seen_as, three, trunk_outputs
from viewkit.pipelines.generate.preprocess import Preprocess
from viewkit.pipelines.models.weights_file import load_file_weights
from viewkit.shards.errors import ConfigError, DataError


class TimmEncoder(Encoder):
    """A ViT of timm by name, e.g. ``vit_small_patch14_dinov2.lvd142m``; ``NAME/random`` is untrained, for trials.

    file: safetensors with its weights, in timm's own names; by default timm's published weights, from its cache.
    """

    def __init__(self, name: str, device: str, file: Path | None = None) -> None:
        import timm

        self.name, _, tag = name.partition("/")
        if not timm.is_model(self.name.partition(".")[0]):
            raise ConfigError(f"encoder is 'timm:{name}', and timm has no model '{self.name}'; see timm.list_models()")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                published = tag != "random" and file is None
                model = timm.create_model(self.name, pretrained=published, num_classes=0)
            except (OSError, RuntimeError, ValueError) as error:
                raise _no_weights(f"timm:{name}", error) from error
        if not hasattr(model, "num_prefix_tokens"):
            raise ConfigError(f"encoder is 'timm:{name}', which has no patch tokens; name a ViT")
        if file is not None:
            load_file_weights(model, file)
        super().__init__(model, device)
        data = timm.data.resolve_model_data_config(model)
        side_px = data["input_size"][-1]
        self.preprocess = Preprocess(side_px, side_px, three(data["mean"]), three(data["std"]))
        self.width, self.grid = probe(self, side_px)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        return trunk_outputs(self.model, x)

    def fingerprint(self) -> Mapping[str, Any]:
        return {"encoder": f"timm:{self.name}", "weights": weights_digest(self.model), **seen_as(self.preprocess)}


class OpenClipEncoder(Encoder):
    """The image tower of an open_clip model, e.g. ``ViT-H-14/laion2b_s32b_b79k``; ``MODEL/random`` is untrained.

    file: safetensors with the weights, of the whole model in open_clip's names (``open_clip_model.safetensors``); by
    default the published ones, from its cache.
    """

    def __init__(self, name: str, device: str, file: Path | None = None) -> None:
        import open_clip

        self.name = name
        model_name, _, tag = name.partition("/")
        if model_name not in open_clip.list_models():
            raise ConfigError(f"encoder is 'open_clip:{name}', and open_clip has no model '{model_name}'")
        tags = open_clip.list_pretrained_tags_by_model(model_name)
        if tag != "random" and tag not in tags and file is None:
            raise ConfigError(
                f"encoder is 'open_clip:{name}'; weights of {model_name} are {', '.join(tags) or 'not published'}"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                published = tag if tag != "random" and file is None else None
                model = open_clip.create_model(model_name, pretrained=published)
            except (OSError, RuntimeError, ValueError) as error:
                raise _no_weights(f"open_clip:{name}", error) from error
        visual = model.visual
        if not hasattr(visual, "output_tokens"):
            raise ConfigError(f"encoder is 'open_clip:{name}', whose image tower has no patch tokens; name a ViT")
        visual.output_tokens = True
        if file is not None:
            load_file_weights(visual, file, prefix="visual.")
        super().__init__(visual, device)
        seen = visual.preprocess_cfg
        side_px = seen["size"] if isinstance(seen["size"], int) else seen["size"][0]
        self.preprocess = Preprocess(side_px, side_px, three(seen["mean"]), three(seen["std"]))
        self.width, self.grid = probe(self, side_px)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        embedding, tokens = self.model(x)
        return tokens, embedding

    def fingerprint(self) -> Mapping[str, Any]:
        return {"encoder": f"open_clip:{self.name}", "weights": weights_digest(self.model), **seen_as(self.preprocess)}


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over names and values of all weights."""
    hasher = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        hasher.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return hasher.hexdigest()


def _no_weights(name: str, error: Exception) -> DataError:
    first = str(error).strip().splitlines()[0]
    return DataError(
        f"encoder '{name}': its weights are not here and cannot be fetched ({first}); download them once on a machine "
        "with a connection, or use --encoder estimator"
    )
