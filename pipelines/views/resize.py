"""Crop and antialiased resize, in two forms that give the pixels of torchvision and Pillow.

Both apply the same triangle or cubic filter, stretched when the crop shrinks. The loop form calls torch's own kernel
on a slice of the channels-last image: on a CPU the fastest by far at large sides, and bit-identical to torchvision v2
on uint8. The product form multiplies with two banded matrices a view: no loop over views, right on a GPU and at sides
of a few dozen pixels.
"""

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from viewkit.pipelines.views.policy import Interpolation

KERNELS = {
    "bilinear": torch.ops.aten._upsample_bilinear2d_aa,
    "bicubic": torch.ops.aten._upsample_bicubic2d_aa,
}
SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}
CUBIC_A = -0.5
"""Keys' cubic with a = -1/2, as Pillow and the antialiased kernels of torch have it."""


def resize_crop(
    image: UInt8[Tensor, "h w 3"] | Float[Tensor, "h w 3"],
    box: tuple[int, int, int, int],
    side_px: int,
    interpolation: Interpolation,
) -> UInt8[Tensor, "3 {side_px} {side_px}"] | Float[Tensor, "3 {side_px} {side_px}"]:
    """One crop (top, left, height, width in px), resized.

    uint8 stays uint8 and is rounded as torchvision rounds it. Float stays float and, where the cubic overshoots, is
    cut to 0-1 as the uint8 kernel does; torchvision leaves the overshoot in.
    """
    top, left, height, width = box
    planar = image[top : top + height, left : left + width].permute(2, 0, 1)[None]  # 1 3 h w, channels last
    if (height, width) == (side_px, side_px):
        return planar[0].contiguous()
    resized: Tensor = KERNELS[interpolation](planar, [side_px, side_px], False)[0].contiguous()
    return resized.clamp_(0, 1) if interpolation == "bicubic" and resized.is_floating_point() else resized


def filter_weights(
    start: Float[Tensor, " m"], extent: Float[Tensor, " m"], side_px: int, pixels: int, interpolation: Interpolation
) -> Float[Tensor, "m {side_px} {pixels}"]:
    """One axis of the resize of m crops as matrices over `pixels` pixels; rows sum to 1, zero outside the crop.

    start, extent: of the crops on this axis, whole numbers in float64. The filter is as wide as its support times
    the scale where the crop shrinks, and is cut at the crop's edges: Pillow's rule, which torch's kernels share.
    """
    scale = (extent / side_px)[:, None, None]  # m 1 1
    stretch = scale.clamp(min=1.0)
    centre = (torch.arange(side_px, device=start.device) + 0.5)[None, :, None] * scale  # m s 1
    reach = SUPPORT[interpolation] * stretch
    first = (centre - reach + 0.5).floor().clamp(min=0)
    last = torch.minimum((centre + reach + 0.5).floor(), extent[:, None, None])
    place = torch.arange(pixels, device=start.device) - start[:, None, None]  # m 1 pixels
    x = ((place + 0.5 - centre) / stretch).abs_()  # m s pixels
    if interpolation == "bilinear":
        weights = x.neg_().add_(1.0).clamp_(min=0)
    else:
        a = CUBIC_A
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = (((x - 5) * x + 8) * x - 4) * a
        weights = torch.where(x < 1, near, torch.where(x < 2, far, 0.0))
    weights *= (place >= first) & (place < last)
    weights /= weights.sum(dim=2, keepdim=True)
    return weights


def fixed_point(weights: Float[Tensor, "m s t"]) -> tuple[Float[Tensor, "m s t"], Float[Tensor, "m 1 1"]]:
    """Weights as whole numbers, and the power of two that they are to be divided by: what the uint8 kernels use.

    The power is the largest whose product with the largest weight stays below 2^15 (at most 2^22).
    """
    largest = weights.amax(dim=(1, 2), keepdim=True)
    bits = torch.zeros_like(largest)
    for power in range(1, 23):
        bits += (0.5 + largest * 2.0**power).floor() < 2**15
    unit = torch.exp2(bits)
    scaled = weights * unit
    return torch.copysign((scaled.abs() + 0.5).floor(), scaled), unit


def resize_windows(
    windows: UInt8[Tensor, "m h w 3"] | Float[Tensor, "m h w 3"],
    boxes: Int[Tensor, "m 4"],
    side_px: int,
    interpolation: Interpolation,
) -> Float[Tensor, "3 m {side_px} {side_px}"]:
    """Crops of m windows, resized by two products each. Values 0-255 for uint8 windows, else the windows' own.

    boxes: (top, left, height, width) in px of the window. For uint8 the products are of whole numbers, rounded and cut
    to 0-255 after each axis as torchvision's uint8 kernel does it; so every sum is exact, in any order, on any device,
    and the pixels are the same everywhere.
    """
    m, height, width, _ = windows.shape
    is_bytes = windows.dtype == torch.uint8
    corner, extent = boxes[:, :2].double(), boxes[:, 2:].double()
    rows = filter_weights(corner[:, 0], extent[:, 0], side_px, height, interpolation)  # m s h
    columns = filter_weights(corner[:, 1], extent[:, 1], side_px, width, interpolation)  # m s w
    kind, units = torch.float32, []
    if is_bytes:
        (columns, across), (rows, down) = fixed_point(columns), fixed_point(rows)
        units = [across, down]
        if max(float(unit.max()) for unit in units) > 2.0**15:  # 255 * 2^15 * overshoot still fits 24 bits
            kind = torch.float64
    planar = windows.permute(0, 1, 3, 2).contiguous().to(kind)  # m h 3 w
    value = torch.bmm(planar.reshape(m, height * 3, width), columns.to(kind).transpose(1, 2))
    if is_bytes:
        value = _rounded(value, units[0].to(kind))
    value = torch.bmm(rows.to(kind), value.view(m, height, 3 * side_px))  # m s (3 s)
    if is_bytes:
        value = _rounded(value, units[1].to(kind))
    elif interpolation == "bicubic":
        value.clamp_(0, 1)
    return value.view(m, side_px, 3, side_px).permute(2, 0, 1, 3).float().contiguous()


def _rounded(value: Float[Tensor, "m a b"], unit: Float[Tensor, "m 1 1"]) -> Float[Tensor, "m a b"]:
    """value / unit to the nearest whole number, halves up, cut to 0-255."""
    return value.div_(unit).add_(0.5).floor_().clamp_(0, 255)
