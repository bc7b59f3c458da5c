"""Gaussian blur with reflected borders, as torchvision's, but as wide as the sigma needs instead of 23 taps.

One view: products with a banded block, which slides over the padded rows and columns as an overlapping view of the
memory (a third of the time of sums of shifted copies). A batch: products with one banded matrix a view.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.engine.transfer import to_device
from viewkit.pipelines.views.render.buffers import Buffers

REACH = 4.4
"""Taps beyond this many sigmas hold less than 0.003 levels of 255 in either direction, whatever the picture."""
ROWS, COLUMNS = 8, 32
"""Lines of a band, for the vertical and the horizontal pass; measured on 224 px."""


def radius_of(sigma: float, side_px: int) -> int:
    """Taps on either side of the centre; at most what reflection at the border allows."""
    return min(max(0, math.ceil(REACH * sigma - 0.5)), side_px - 1)


def kernel(sigma: float, radius: int) -> list[float]:
    """The 2 radius + 1 weights, which sum to 1."""
    half = [math.exp(-0.5 * (tap / sigma) ** 2) for tap in range(radius + 1)]
    total = half[0] + 2 * sum(half[1:])
    return [weight / total for weight in half[:0:-1] + half]


def band(sigma: float, radius: int, lines: int) -> Float[Tensor, "{lines} {lines}+2*{radius}"]:
    """`lines` copies of the kernel, each one place further: a block of the blur's matrix."""
    reach = lines + 2 * radius
    copies = torch.zeros(lines, reach + 1)
    copies[:, : 2 * radius + 1] = torch.tensor(kernel(sigma, radius))
    return copies.view(-1)[: lines * reach].view(lines, reach)


def blur(view: Float[Tensor, "3 s s"], sigma: float, buffers: Buffers) -> None:
    """Blur one view in place."""
    side = view.shape[-1]
    radius = radius_of(sigma, side)
    if radius == 0:
        return
    count = -(-(side + 2 * radius) // ROWS)  # bands a channel, those of the padding included
    lines = count * ROWS
    tall = buffers.flat("tall", (3 * lines + 2 * radius) * side)
    padded = tall[: 3 * lines * side].view(3, lines, side)
    padded[:, radius : radius + side] = view
    for tap in range(1, radius + 1):
        padded[:, radius - tap] = view[:, tap]
        padded[:, radius + side - 1 + tap] = view[:, side - 1 - tap]
    windows = tall.as_strided((3 * count, ROWS + 2 * radius, side), (ROWS * side, side, 1))
    rows = buffers.flat("rows", 3 * lines * side).view(3 * count, ROWS, side)
    torch.bmm(band(sigma, radius, ROWS).expand(3 * count, -1, -1), windows, out=rows)
    rows = rows.view(3, lines, side)[:, :side]

    count = -(-side // COLUMNS)
    pitch = count * COLUMNS + 2 * radius
    wide = buffers.flat("wide", 3 * side * pitch).view(3, side, pitch)
    wide[:, :, radius : radius + side] = rows
    for tap in range(1, radius + 1):
        wide[:, :, radius - tap] = rows[:, :, tap]
        wide[:, :, radius + side - 1 + tap] = rows[:, :, side - 1 - tap]
    windows = wide.as_strided((count, 3 * side, COLUMNS + 2 * radius), (COLUMNS, pitch, 1))
    columns = buffers.flat("columns", count * 3 * side * COLUMNS).view(count, 3 * side, COLUMNS)
    torch.bmm(windows, band(sigma, radius, COLUMNS).t().expand(count, -1, -1), out=columns)
    if side % COLUMNS == 0:
        view.view(3 * side, count, COLUMNS).copy_(columns.transpose(0, 1))
    else:
        view.copy_(columns.transpose(0, 1).reshape(3, side, -1)[:, :, :side])


def blur_matrices(sigmas: Float[Tensor, " m"], side_px: int, most: int) -> Float[Tensor, "m {side_px} {side_px}"]:
    """The blur of one axis, reflection included, as a matrix for every sigma (> 0). most: the largest radius."""
    place = torch.arange(side_px, device=sigmas.device)
    tap = torch.arange(-most, most + 1, device=sigmas.device)
    radius = (REACH * sigmas - 0.5).ceil().clamp(0, side_px - 1)[:, None]
    weights = torch.exp(-0.5 * (tap / sigmas[:, None]) ** 2) * (tap.abs() <= radius)  # m taps
    weights = weights / weights.sum(dim=1, keepdim=True)
    period = max(1, 2 * (side_px - 1))
    source = (place[:, None] + tap).abs() % period  # s taps
    source = torch.where(source >= side_px, period - source, source)
    matrices = torch.zeros(len(sigmas), side_px, side_px, device=sigmas.device)
    return matrices.scatter_add_(
        2, source.expand(len(sigmas), -1, -1), weights[:, None].expand(-1, side_px, -1).contiguous()
    )


def blur_batch(batch: Float[Tensor, "3 m s s"], sigmas: Float[np.ndarray, " m"]) -> None:
    """Blur the views with a sigma above 0, in place."""
    chosen = np.flatnonzero(sigmas > 0)
    if not chosen.size:
        return
    used, side = sigmas[chosen].astype(np.float32), batch.shape[-1]
    at = to_device(chosen, batch.device)
    matrices = blur_matrices(to_device(used, batch.device), side, radius_of(float(used.max()), side))  # k s s
    for channel in batch:
        channel.index_copy_(0, at, matrices @ channel[at] @ matrices.transpose(1, 2))
