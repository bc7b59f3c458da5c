"""ViTs of timm with the class token of every block at hand, and MoCo v3's initialisation of one."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.models.backbone import Backbone
from viewkit.shards.errors import ConfigError


class VisionTransformer(Backbone):
    """trunk: a timm VisionTransformer without a classifier. Taps are class tokens, or mean patch tokens."""

    kind = "vit"

    def __init__(self, trunk: Any, name: str, side_px: int) -> None:
        widths = (trunk.num_features,) * len(trunk.blocks)
        super().__init__(trunk, name, side_px, num_features=trunk.num_features, exit_widths=widths)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        return self.trunk.forward_head(self.trunk.forward_features(x), pre_logits=True)

    def exits(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n d"], list[Float[Tensor, "n _"]]]:
        """As `forward`, block by block. The taps are copies: a slice would keep every block's whole output alive, and
        memory that is used again stays in the processor's cache."""
        trunk, has_class = self.trunk, self.trunk.num_prefix_tokens > 0
        taps: list[Float[Tensor, "n _"]] = []
        rows = x if len(x) else x.new_zeros(1, *x.shape[1:])  # timm's positions for any side need a row
        x = trunk.norm_pre(trunk.patch_drop(trunk._pos_embed(trunk.patch_embed(rows))[: len(x)]))
        for block in trunk.blocks:
            x = block(x)
            taps.append(x[:, 0].clone() if has_class else x.mean(dim=1))
        return trunk.forward_head(trunk.norm(x), pre_logits=True), taps

    def tokens_and_features(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n d"]]:
        last = self.trunk.forward_features(x)
        return last[:, self.trunk.num_prefix_tokens :], self.trunk.forward_head(last, pre_logits=True)


def fix_positions(trunk: Any) -> None:
    """Sine-cosine position codes that are not trained."""
    rows, columns = trunk.patch_embed.grid_size
    num_prefix = trunk.pos_embed.shape[1] - rows * columns
    codes = sincos_positions(rows, columns, trunk.embed_dim, num_prefix=num_prefix)
    trunk.pos_embed = nn.Parameter(codes, requires_grad=False)


def sincos_positions(rows: int, columns: int, width: int, *, num_prefix: int = 1) -> Float[Tensor, "1 t d"]:
    """Fixed two-dimensional sine-cosine codes (MoCo v3, Chen et al. 2021, sec. 4).

    Those of `num_prefix` class tokens (all zero), then of the patches in reading order.

    A patch has width / 4 sines and cosines of its column and as many of its row, at wavelengths from 2 pi to
    10000 * 2 pi patches.
    """
    if width % 4:
        raise ConfigError(f"sine-cosine positions need a width that 4 divides, and the ViT's is {width}")
    omega = 10_000.0 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    x = torch.arange(columns, dtype=torch.float64)[:, None] * omega
    y = torch.arange(rows, dtype=torch.float64)[:, None] * omega
    across = torch.cat([x.sin(), x.cos()], dim=1).expand(rows, columns, width // 2)
    down = torch.cat([y.sin(), y.cos()], dim=1)[:, None].expand(rows, columns, width // 2)
    patches = torch.cat([across, down], dim=2).flatten(0, 1)  # (rows columns) d
    return torch.cat([torch.zeros(num_prefix, width, dtype=torch.float64), patches])[None].float()


def freeze_patches(trunk: Any) -> None:
    """Stop training the patch projection: MoCo v3's cure for instability (Chen et al. 2021, sec. 4.2)."""
    for parameter in trunk.patch_embed.parameters():
        parameter.requires_grad_(False)


def init_moco_v3_weights(trunk: Any) -> None:
    """Xavier-uniform weights and zero biases; queries, keys and values count as three matrices, the patch projection
    as one matrix from its pixels to the width."""
    for name, module in trunk.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        parts = 3 if name.endswith("qkv") else 1
        bound = math.sqrt(6 / (module.in_features + module.out_features // parts))
        nn.init.uniform_(module.weight, -bound, bound)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    patches = trunk.patch_embed.proj
    bound = math.sqrt(6 / (patches.weight[0].numel() + patches.out_channels))
    nn.init.uniform_(patches.weight, -bound, bound)
    if patches.bias is not None:
        nn.init.zeros_(patches.bias)
    if trunk.cls_token is not None:
        with torch.no_grad():
            trunk.cls_token.normal_(std=1e-6)
