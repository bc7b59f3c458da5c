"""viewkit's own small architectures, and the kind of any architecture by its name; plain Python, so that configs that
name an architecture stay cheap to import."""

from typing import Any, Literal

Kind = Literal["vit", "resnet"]
Init = Literal["moco_v3", "timm"]
"""Initialisation of a ViT. `moco_v3`: fixed sine-cosine positions, a frozen patch projection, MoCo v3's weights, and
heads 32 wide in ViT-S (12 of them, where timm has 6). `timm`: timm's own. ResNets are the same under either."""

VITS: dict[str, dict[str, int]] = {
    "vit_pico_patch4": {"patch_size": 4, "embed_dim": 128, "depth": 6, "num_heads": 4},
    "vit_pico_patch8": {"patch_size": 8, "embed_dim": 128, "depth": 6, "num_heads": 4},
    "vit_tiny_patch4": {"patch_size": 4, "embed_dim": 192, "depth": 12, "num_heads": 6},
    "vit_tiny_patch8": {"patch_size": 8, "embed_dim": 192, "depth": 12, "num_heads": 6},
    "vit_small_patch8": {"patch_size": 8, "embed_dim": 384, "depth": 12, "num_heads": 12},
}
RESNETS: dict[str, dict[str, Any]] = {
    "resnet10_narrow": {"layers": (1, 1, 1, 1), "channels": (32, 64, 128, 256)},
    "resnet18_cifar": {"layers": (2, 2, 2, 2), "channels": (64, 128, 256, 512)},
    "resnet50_cifar": {"layers": (3, 4, 6, 3), "channels": (64, 128, 256, 512)},
}
"""Residual stages. The stem is a 3x3 convolution without max-pool: of stride 1, in `resnet10_narrow` of stride 2."""

VIT_PREFIXES = ("vit", "flexivit", "test_vit", "eva_large", "aimv2", "beit3")
"""Prefixes of the names of timm's plain ViTs; the other architectures that viewkit takes are ResNets."""


def kind_of(arch: str) -> Kind:
    """The kind of a backbone, judged by its name alone."""
    return "vit" if arch.startswith(VIT_PREFIXES) else "resnet"
