"""Crop and antialiased resize, in two forms that give the pixels of torchvision and Pillow.

Both apply the same triangle or cubic filter, stretched when the crop shrinks. The loop form calls torch's own kernel
on a slice of the channels-last image: on a CPU the fastest by far at large sides, and bit-identical to torchvision v2
on uint8. The product form multiplies with two banded matrices a view: no loop over views, right on a GPU and at sides
of a few dozen pixels.
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from viewkit.pipelines.engine.transfer import to_device
from viewkit.pipelines.views.policy import Interpolation

FILTERS = {
    "bilinear": torch.ops.aten._upsample_bilinear2d_aa,
    "bicubic": torch.ops.aten._upsample_bicubic2d_aa,
}
SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}
TABLE_PX = 48
"""Up to this many pixels the matrices of all extents are kept."""
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
    resized: Tensor = FILTERS[interpolation](planar, [side_px, side_px], False)[0].contiguous()
    return resized.clamp_(0, 1) if interpolation == "bicubic" and resized.is_floating_point() else resized


def filter_weights(
    extent: Float[Tensor, " m"], side_px: int, pixels: int, interpolation: Interpolation
) -> Float[Tensor, "m {side_px} {pixels}"]:
    """One axis of the resize of m crops as matrices over `pixels` pixels; rows sum to 1, zero beyond the crop.

    extent: of the crops on this axis, whole numbers in float64, from pixel 0 on. The filter is as wide as its support
    times the scale where the crop shrinks, and is cut at the crop's edges: Pillow's rule, which torch's kernels share.
    """
    scale = (extent / side_px)[:, None, None]  # m 1 1
    stretch = scale.clamp(min=1.0)
    centre = (torch.arange(side_px, device=extent.device) + 0.5)[None, :, None] * scale  # m s 1
    reach = SUPPORT[interpolation] * stretch
    first = (centre - reach + 0.5).floor().clamp(min=0)
    last = torch.minimum((centre + reach + 0.5).floor(), extent[:, None, None])
    place = torch.arange(pixels, device=extent.device, dtype=extent.dtype)
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


@lru_cache(maxsize=2**15)
def largest_weight(extent: int, side_px: int, interpolation: Interpolation) -> float:
    """Of the matrix of one axis; computed on the host, which must not wait for the device to know it."""
    one = torch.tensor([extent], dtype=torch.float64)
    return float(filter_weights(one, side_px, extent, interpolation).max())


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


def axis_matrices(
    extents: Int[np.ndarray, " m"],
    side_px: int,
    pixels: int,
    interpolation: Interpolation,
    is_bytes: bool,
    device: torch.device,
) -> tuple[Float[Tensor, "m s t"], Float[Tensor, "m 1 1"] | None]:
    """The matrices of one axis, and for bytes their units. Few extents differ in a batch, so each is built once."""
    # "high" and "medium" let float32 products drop digits; float64 ones keep them
    wide = torch.get_float32_matmul_precision() != "highest"
    if pixels <= TABLE_PX:
        which = extents - 1
        matrices, unit = _table(side_px, pixels, interpolation, is_bytes, device, wide)
    else:
        different, which = np.unique(extents, return_inverse=True)
        matrices, unit = _matrices(different, side_px, pixels, interpolation, is_bytes, device, wide)
    at = to_device(which, device)
    return matrices.index_select(0, at), None if unit is None else unit.index_select(0, at)


@lru_cache(maxsize=32)
def _table(
    side_px: int, pixels: int, interpolation: Interpolation, is_bytes: bool, device: torch.device, wide: bool
) -> tuple[Float[Tensor, "e s t"], Float[Tensor, "e 1 1"] | None]:
    """The matrices of every extent from 1 pixel on: for images of a few dozen pixels, at most half a MiB."""
    return _matrices(np.arange(1, pixels + 1), side_px, pixels, interpolation, is_bytes, device, wide)


def _matrices(
    extents: Int[np.ndarray, " e"],
    side_px: int,
    pixels: int,
    interpolation: Interpolation,
    is_bytes: bool,
    device: torch.device,
    wide: bool,
) -> tuple[Float[Tensor, "e s t"], Float[Tensor, "e 1 1"] | None]:
    weights = filter_weights(to_device(extents.astype(np.float64), device), side_px, pixels, interpolation)
    if not is_bytes:
        return weights.float(), None
    whole, unit = fixed_point(weights)
    # 255 * 2^15 * the cubic's overshoot still fits the 24 bits of a float32, more does not; see `fixed_point`
    fits = min(largest_weight(int(extent), side_px, interpolation) for extent in extents) >= 0.5
    kind = torch.float32 if fits and not wide else torch.float64
    return whole.to(kind), unit.to(kind)


def resize_windows(
    windows: UInt8[Tensor, "m h w 3"] | Float[Tensor, "m h w 3"],
    extents: Int[np.ndarray, "m 2"],
    side_px: int,
    interpolation: Interpolation,
) -> Float[Tensor, "3 m {side_px} {side_px}"]:
    """Crops at the upper left of m windows, resized by two products each; 0-255 for uint8, else the windows' range.

    extents: (height, width) of the crops in px; what lies beyond them is not used. For uint8 the products are of whole
    numbers, rounded and cut to 0-255 after each axis as torchvision's uint8 kernel does it; so every sum is exact, in
    any order, on any device, and the pixels are the same everywhere.
    """
    m, height, width, _ = windows.shape
    is_bytes = windows.dtype == torch.uint8
    rows, down = axis_matrices(extents[:, 0], side_px, height, interpolation, is_bytes, windows.device)
    columns, across = axis_matrices(extents[:, 1], side_px, width, interpolation, is_bytes, windows.device)
    planar = windows.permute(0, 1, 3, 2).contiguous().to(columns.dtype)  # m h 3 w
    value = torch.bmm(planar.view(m, height * 3, width), columns.transpose(1, 2))
    if across is not None:
        value = _rounded(value, across)
    value = torch.bmm(rows, value.view(m, height, 3 * side_px).to(rows.dtype))  # m s (3 s)
    if down is not None:
        value = _rounded(value, down)
    elif interpolation == "bicubic":
        value.clamp_(0, 1)
    return value.view(m, side_px, 3, side_px).permute(2, 0, 1, 3).float().contiguous()


def _rounded(value: Float[Tensor, "m a b"], unit: Float[Tensor, "m 1 1"]) -> Float[Tensor, "m a b"]:
    """value / unit to the nearest whole number, halves up, cut to 0-255."""
    return value.div_(unit).add_(0.5).floor_().clamp_(0, 255)
