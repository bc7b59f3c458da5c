"""Encoders of timm and open_clip, by name, with published weights, weights from a file, or none."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder, EncoderRequest, trunk_outputs
from viewkit.pipelines.encoders.preprocess import Preprocess
from viewkit.pipelines.views.policy import colour
from viewkit.pipelines.weights.file import load_file_weights
from viewkit.shards.errors import ConfigError, DataError

RANDOM = "random"
"""What stands for the weights in the name of an untrained network, for trials."""
PUBLISHED_SIDE_PX = {"convnext_base_w": 224}
"""Sides that GenView's code forces on a network: 7 x 7 x 1024, where the network's own 256 px would give 8 x 8."""


class TimmEncoder(Encoder):
    """A network of timm by name, e.g. ``vit_small_patch14_dinov2.lvd142m``."""

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        return trunk_outputs(self.model, x)


class OpenClipEncoder(Encoder):
    """The image tower of an open_clip model, e.g. ``ViT-H-14/laion2b_s32b_b79k``; features are CLIP's embedding."""

    quick_gelu_forced = False
    """Whether it has QuickGELU because its weights were trained with it, where its architecture has GELU."""

    def fingerprint(self) -> Mapping[str, Any]:
        found = super().fingerprint()
        return {**found, "activation": "quick_gelu"} if self.quick_gelu_forced else found

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        if hasattr(self.model, "trunk"):  # a network of timm
            tokens, pooled = trunk_outputs(self.model.trunk, x)
            return tokens, self.model.head(pooled)
        features, tokens = self.model(x)
        return tokens, features


def open_timm(asked: EncoderRequest) -> TimmEncoder:
    """Weights: of `encoder_weights` in timm's own names (a classifier among them is left out), by default those that
    timm publishes, from its cache."""
    import timm

    name, _, tag = asked.name.removeprefix("timm:").partition("/")
    if not timm.is_model(name.partition(".")[0]):
        raise ConfigError(f"encoder is '{asked.name}', and timm has no model '{name}'; see timm.list_models()")
    published = tag != RANDOM and asked.encoder_weights is None
    model = _create(asked, lambda: timm.create_model(name, pretrained=published, num_classes=0))
    if asked.encoder_weights is not None:
        load_file_weights(model, asked.encoder_weights)
    data = timm.data.resolve_model_data_config(model)
    side_px = asked.side_px or PUBLISHED_SIDE_PX.get(name) or data["input_size"][-1]
    preprocess = Preprocess(side_px, side_px, colour(data["mean"]), colour(data["std"]))
    return TimmEncoder(model, preprocess, name=asked.name, device=asked.device, precision=asked.precision)


def open_open_clip(asked: EncoderRequest) -> OpenClipEncoder:
    """Weights: of `encoder_weights`, the whole model in open_clip's names (``open_clip_model.safetensors``), whatever
    the tag then is; by default those published under the tag, from open_clip's cache. Activation
    and normalisation are those that the tag's weights were trained with."""
    import open_clip

    name, _, tag = asked.name.removeprefix("open_clip:").partition("/")
    if name not in open_clip.list_models():
        raise ConfigError(f"encoder is '{asked.name}', and open_clip has no model '{name}'")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in (RANDOM, *tags) and asked.encoder_weights is None:
        raise ConfigError(f"encoder is '{asked.name}'; weights of {name} are {', '.join(tags) or 'not published'}")
    source = None if tag == RANDOM or asked.encoder_weights is not None else tag
    quick = needs_quick_gelu(name, tag)
    visual = _create(asked, lambda: open_clip.create_model(name, pretrained=source, force_quick_gelu=quick)).visual
    if not hasattr(visual, "trunk"):
        if not hasattr(visual, "output_tokens"):
            raise ConfigError(f"encoder is '{asked.name}', whose image tower gives no feature map; name a ViT")
        visual.output_tokens = True
    if asked.encoder_weights is not None:
        load_file_weights(visual, asked.encoder_weights, prefix="visual.")
    seen = {**visual.preprocess_cfg, **normalisation(name, tag)}
    own_px = seen["size"] if isinstance(seen["size"], int) else seen["size"][0]
    side_px = asked.side_px or PUBLISHED_SIDE_PX.get(name) or own_px
    preprocess = Preprocess(side_px, side_px, colour(seen["mean"]), colour(seen["std"]))
    encoder = OpenClipEncoder(visual, preprocess, name=asked.name, device=asked.device, precision=asked.precision)
    encoder.quick_gelu_forced = quick
    return encoder


def normalisation(name: str, tag: str) -> dict[str, Any]:
    """mean and std that the tag's weights were trained with, where open_clip knows them: 0.5 for SigLIP's. It applies
    them only to weights that it loads itself."""
    import open_clip

    known = open_clip.get_pretrained_cfg(name, tag)
    return {each: known[each] for each in ("mean", "std") if known.get(each) is not None}


def needs_quick_gelu(name: str, tag: str) -> bool:
    """Whether open_clip's weights `tag` were trained with QuickGELU and its architecture `name` has GELU, as those of
    OpenAI for ViT-B-32. open_clip only warns of it."""
    import open_clip

    trained_with = open_clip.get_pretrained_cfg(name, tag).get("quick_gelu", False)
    return bool(trained_with) and not open_clip.get_model_config(name).get("quick_gelu", False)


def _create(asked: EncoderRequest, create: Any) -> Any:
    """The library's network; untrained weights come from a seed of their own and leave the global generator alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return create()
        except (OSError, RuntimeError, ValueError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DataError(
                f"encoder '{asked.name}': its weights are not here and cannot be fetched ({first}); download them once "
                "on a machine with a connection, give a safetensors file with --encoder-weights, or use --encoder "
                "estimator"
            ) from error
