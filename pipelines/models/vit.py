"""ViTs of timm with the class token of every block at hand, and the MoCo v3 way to begin one."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.positions import sincos_positions


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

    def tokens(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n t d"]:
        return self.trunk.forward_features(x)[:, self.trunk.num_prefix_tokens :]


def fix_positions(trunk: Any) -> None:
    """Sine-cosine position codes that are not trained."""
    rows, columns = trunk.patch_embed.grid_size
    num_prefix = trunk.pos_embed.shape[1] - rows * columns
    codes = sincos_positions(rows, columns, trunk.embed_dim, num_prefix=num_prefix)
    trunk.pos_embed = nn.Parameter(codes, requires_grad=False)


def freeze_patches(trunk: Any) -> None:
    """Stop training the patch projection: MoCo v3's cure for instability (Chen et al. 2021, sec. 4.2)."""
    for parameter in trunk.patch_embed.parameters():
        parameter.requires_grad_(False)


def draw_moco_v3_weights(trunk: Any) -> None:
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
