"""A trained trunk for the estimator, from timm or from a run, with the views that it takes."""

from dataclasses import dataclass
from pathlib import Path

import torch

from viewkit.pipelines.models.architectures import Init
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.saved import load_encoder
from viewkit.pipelines.views.policy import Colour, colour
from viewkit.pipelines.weights.file import read_file_tensors
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError


@dataclass(frozen=True)
class Trunk:
    """backbone: frozen, in evaluation mode. The rest is what makes the same network again, and how its views look."""

    backbone: Backbone
    arch: str
    init: Init
    num_heads: int | None
    side_px: int
    mean: Colour
    std: Colour


def open_trunk(name: str, dataset: Dataset, weights: Path | None, side_px: int | None) -> Trunk:
    """side_px: of the views; None for the trunk's own. `ConfigError` for a name or file that do not fit each other."""
    check_trunk(name, weights)
    if name.startswith("runs/"):
        backbone, facts = load_encoder(dataset.artifact(name))
        if side_px not in (None, facts.side_px):
            raise ConfigError(f"side_px is {side_px} and {name} was trained at {facts.side_px}; leave it out")
        return Trunk(backbone, facts.arch, facts.init, facts.num_heads, facts.side_px, facts.mean, facts.std)
    assert weights is not None
    return _open_timm(name.removeprefix("timm:"), weights, side_px)


def check_trunk(name: str | None, weights: Path | None) -> None:
    """`ConfigError` unless a file is given with the trunks of timm, and with these alone."""
    if (name or "").startswith("timm:") != (weights is not None):
        raise ConfigError(
            f"trunk is '{name}' and --trunk-weights is {weights}: a trunk timm:NAME needs a .safetensors file with its "
            "weights under timm's names, and nothing else reads one"
        )


def _open_timm(name: str, weights: Path, side_px: int | None) -> Trunk:
    """A ViT of timm; its position codes are resampled where the file's are for another side."""
    import timm
    from timm.layers import resample_abs_pos_embed

    arch = name.partition(".")[0]
    if not timm.is_model(arch):
        raise ConfigError(f"trunk is 'timm:{name}', and timm has no model '{arch}'; see timm.list_models('vit_*')")
    published = timm.get_pretrained_cfg(name if "." in name else arch, allow_unregistered=True)
    if published is None:
        raise ConfigError(f"trunk is 'timm:{name}', and timm does not say which views that model takes")
    side_px = side_px or int(published.input_size[-1])
    backbone = create_backbone(arch, side_px, init="timm")
    if backbone.kind != "vit":
        raise ConfigError(f"trunk is 'timm:{name}', which is no ViT; name a ViT, whose blocks are the exits' depths")
    trunk = backbone.trunk
    own, found = trunk.state_dict(), read_file_tensors(weights)
    codes = found.get("pos_embed")
    if codes is not None and "pos_embed" in own and codes.shape[1] != own["pos_embed"].shape[1]:
        prefix = 0 if trunk.no_embed_class else trunk.num_prefix_tokens
        found["pos_embed"] = resample_abs_pos_embed(codes, list(trunk.patch_embed.grid_size), num_prefix_tokens=prefix)
    wrong = [key for key in own if key not in found or found[key].shape != own[key].shape]
    if wrong:
        raise DataError(
            f"{weights}: weights of another network than timm's '{arch}': {len(wrong)} of {len(own)} tensors are "
            f"lacking or of another shape (first: {wrong[0]})"
        )
    trunk.load_state_dict({key: found[key].to(torch.float32) for key in own})
    backbone.eval().requires_grad_(False)
    return Trunk(backbone, arch, "timm", None, side_px, colour(published.mean), colour(published.std))
