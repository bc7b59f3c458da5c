"""Backbones by name: any ViT or ResNet of timm, and a few small ones. No weights are ever downloaded."""

from typing import Any

from viewkit.pipelines.models.architectures import RESNETS, VITS, Init
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.shards.errors import ConfigError


def create_backbone(
    name: str,
    side_px: int,
    *,
    init: Init = "moco_v3",
    num_heads: int | None = None,
    drop_path: float = 0.0,
    seed: int = 0,
) -> Backbone:
    """A backbone with fresh weights that depend on the arguments alone.

    drop_path: share of rows for which a ViT's last block is left out in training; rising from 0 at the first block.
    name: one of `VITS` or `RESNETS`, or a ViT or ResNet of timm, e.g. ``vit_small_patch16_224``, ``resnet50``.
    Raises `ConfigError` when there is none of that name, or the side does not fit it.
    """
    from timm.models import is_model, is_model_in_modules

    with seeded_weights(seed):
        if name in RESNETS:
            return _own_resnet(name, side_px)
        if name in VITS or (is_model(name) and is_model_in_modules(name, ["vision_transformer"])):
            return _vit(name, side_px, init, num_heads, drop_path)
        if is_model(name) and is_model_in_modules(name, ["resnet"]):
            return _timm_resnet(name, side_px)
    if is_model(name):
        raise ConfigError(f"arch is '{name}': viewkit takes ViTs and ResNets of timm, and this is neither")
    raise ConfigError(
        f"arch is '{name}': neither one of {', '.join([*VITS, *RESNETS])} nor a model of timm; "
        "timm.list_models('vit_*') lists ViTs"
    )


def _vit(name: str, side_px: int, init: Init, num_heads: int | None, drop_path: float) -> Backbone:
    import timm
    from timm.models.vision_transformer import VisionTransformer as TimmViT

    from viewkit.pipelines.models.vit import VisionTransformer, fix_positions, freeze_patches, init_moco_v3_weights

    options: dict[str, Any] = {"img_size": side_px, "num_classes": 0, "dynamic_img_size": True, **VITS.get(name, {})}
    if init == "moco_v3" and name.startswith("vit_small"):
        options["num_heads"] = 12
    if num_heads is not None:
        options["num_heads"] = num_heads
    if drop_path:
        options["drop_path_rate"] = drop_path
    try:
        trunk = TimmViT(**options) if name in VITS else timm.create_model(name, pretrained=False, **options)
    except AssertionError as error:  # timm's own checks of its options
        raise ConfigError(
            f"arch '{name}' cannot be built with num_heads {num_heads}, side_px {side_px}: {error}"
        ) from error
    patch_px, _ = trunk.patch_embed.patch_size
    if side_px % patch_px or side_px < patch_px:
        raise ConfigError(f"side_px is {side_px}, which {patch_px} px patches of '{name}' do not tile; take a multiple")
    if init == "moco_v3":
        if trunk.pos_embed is None:
            raise ConfigError(f"arch '{name}' has no position codes to fix as MoCo v3 does; use --init timm")
        init_moco_v3_weights(trunk)
        fix_positions(trunk)
        freeze_patches(trunk)
    return VisionTransformer(trunk, name, side_px)


def _own_resnet(name: str, side_px: int) -> Backbone:
    from timm.models.resnet import BasicBlock, Bottleneck
    from timm.models.resnet import ResNet as TimmResNet

    from viewkit.pipelines.models.resnet import ResNet, small_stem

    _check_side(name, side_px)
    block = Bottleneck if name.startswith("resnet50") else BasicBlock
    trunk = TimmResNet(block, num_classes=0, **RESNETS[name])
    small_stem(trunk, stride=2 if name == "resnet10_narrow" else 1)
    return ResNet(trunk, name, side_px)


def _timm_resnet(name: str, side_px: int) -> Backbone:
    import timm

    from viewkit.pipelines.models.resnet import ResNet

    _check_side(name, side_px)
    return ResNet(timm.create_model(name, pretrained=False, num_classes=0), name, side_px)


def _check_side(name: str, side_px: int) -> None:
    if side_px < 16:
        raise ConfigError(f"side_px is {side_px}; '{name}' needs views of at least 16 px")
