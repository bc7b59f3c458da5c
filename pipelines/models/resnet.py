"""ResNets of timm with the pooled output of every residual block at hand, and the stem for small images."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.convolution import use_small_map_convolutions


class ResNet(Backbone):
    """trunk: a timm ResNet without a classifier. Exits are global averages, one per residual block.

    Runs in channels-last layout everywhere: on CPUs a training step takes 0.7 of the time (`benchmarks.md`).
    """

    kind = "resnet"

    def __init__(self, trunk: Any, name: str, side_px: int) -> None:
        widths = tuple(_width(block) for stage in _stages(trunk) for block in stage)
        trunk = trunk.to(memory_format=torch.channels_last)
        use_small_map_convolutions(trunk)
        super().__init__(trunk, name, side_px, num_features=trunk.num_features, exit_widths=widths)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        x = x.contiguous(memory_format=torch.channels_last)
        return self.trunk.forward_head(self.trunk.forward_features(x), pre_logits=True)

    def exits(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n d"], list[Float[Tensor, "n _"]]]:
        trunk, taps = self.trunk, []
        x = x.contiguous(memory_format=torch.channels_last)
        x = trunk.maxpool(trunk.act1(trunk.bn1(trunk.conv1(x))))
        for stage in _stages(trunk):
            for block in stage:
                x = block(x)
                taps.append(x.mean(dim=(2, 3)))
        return trunk.forward_head(x, pre_logits=True), taps

    def tokens_and_features(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n d"]]:
        last = self.trunk.forward_features(x.contiguous(memory_format=torch.channels_last))
        return last.flatten(2).transpose(1, 2), self.trunk.forward_head(last, pre_logits=True)  # n (h w) d


def small_stem(trunk: Any, stride: int = 1) -> None:
    """A 3x3 convolution and no max-pool; of stride 1 it is the CIFAR stem, under which 32 px keep 32 x 32 positions."""
    trunk.conv1 = nn.Conv2d(3, trunk.conv1.out_channels, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(trunk.conv1.weight, mode="fan_out", nonlinearity="relu")
    trunk.maxpool = nn.Identity()


def _stages(trunk: Any) -> list[Any]:
    return [trunk.layer1, trunk.layer2, trunk.layer3, trunk.layer4]


def _width(block: Any) -> int:
    last = block.conv3 if hasattr(block, "conv3") else block.conv2
    return int(last.out_channels)
