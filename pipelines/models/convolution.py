"""3x3 convolutions whose weight gradient is one matrix product on small maps, in bfloat16 on CPUs.

The last blocks of a ResNet see maps of 2x2 to 4x4 positions when views have 24 or 32 px. There oneDNN's weight
gradient in bfloat16 takes up to six times as long as its forward pass, and a product over all positions of the batch
a tenth of that. The forward pass and the gradient of the input stay torch's.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input

MOST_POSITIONS = 16
"""Of an output map. Above, copying the patches costs as much as the product saves."""


class SmallMapConvolution(torch.autograd.Function):
    """``conv2d(x, weight, stride=stride, padding=1)`` for 3x3 kernels. Shapes: x ``n i h w``, weight ``o i 3 3``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return nn.functional.conv2d(x, weight, stride=stride, padding=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        for_x = for_weight = None
        if ctx.needs_input_grad[0]:
            for_x = conv2d_input(x.shape, weight, gradient, stride=ctx.stride, padding=1)
        if ctx.needs_input_grad[1]:
            out_channels, in_channels, *_ = weight.shape
            by_position = gradient.permute(0, 2, 3, 1).reshape(-1, out_channels)  # (n h w) o
            patches = patches_of(x, ctx.stride, gradient.shape[2], gradient.shape[3])
            for_weight = (by_position.T @ patches).view(out_channels, 3, 3, in_channels).permute(0, 3, 1, 2)
        return for_x, for_weight, None


def patches_of(x: Float[Tensor, "n i y x"], stride: int, height: int, width: int) -> Float[Tensor, "nhw 9*i"]:
    """What each position of a 3x3 convolution's output sees, channels last."""
    padded = nn.functional.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    shifted = [
        padded[:, row : row + height * stride : stride, column : column + width * stride : stride]
        for row in range(3)
        for column in range(3)
    ]
    return torch.stack(shifted, dim=3).view(-1, 9 * x.shape[1])


class Conv2d(nn.Conv2d):
    """torch's, with `SmallMapConvolution` where that is faster. Parameters and names are the same."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else input.dtype
        stride = self.stride[0]
        positions = -(-input.shape[-2] // stride) * -(-input.shape[-1] // stride)
        small = positions <= MOST_POSITIONS and input.device.type == "cpu" and dtype == torch.bfloat16
        if small and torch.is_grad_enabled() and weight.requires_grad:
            output: Tensor = SmallMapConvolution.apply(input.to(dtype), weight.to(dtype), stride)
            return output
        return super()._conv_forward(input, weight, bias)


def use_small_map_convolutions(network: nn.Module) -> None:
    """Make every convolution of `network` that is 3x3, padded by 1 and without bias or groups a `Conv2d` of ours."""
    for module in network.modules():
        if type(module) is nn.Conv2d and _is_plain(module):
            module.__class__ = Conv2d


def _is_plain(module: nn.Conv2d) -> bool:
    same = module.padding in ((1, 1), 1) and module.dilation == (1, 1) and module.padding_mode == "zeros"
    return (
        same
        and module.kernel_size == (3, 3)
        and len({*module.stride}) == 1
        and module.groups == 1
        and module.bias is None
    )
