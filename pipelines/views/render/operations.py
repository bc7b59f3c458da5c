"""Apply RandAugment's operations to a batch: each one once, on all views that drew it.

A batch is [3, m, s, s] float in 0-255, as in `colour_batch`. Equal to torchvision's float operations; where an
operation is defined on whole levels (posterize, equalize), values are rounded to them first. What geometry moves in
from outside is black.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.engine.transfer import to_device
from viewkit.pipelines.views.randaugment import OPERATIONS
from viewkit.pipelines.views.recipe import column
from viewkit.pipelines.views.render.colour import WHITE
from viewkit.pipelines.views.render.colour_batch import luma

Batch = Float[Tensor, "3 k s s"]
Strength = Float[Tensor, " k"]


def apply_operations(batch: Batch, recipes: Float[np.ndarray, "m p"]) -> None:
    """Both operations of every view, in place."""
    for slot in (1, 2):
        drawn = recipes[:, column(f"op_{slot}")].astype(np.int64)
        for operation in np.unique(drawn[drawn > 0]).tolist():
            rows = np.flatnonzero(drawn == operation)
            at = to_device(rows, batch.device)
            strength = to_device(recipes[rows, column(f"strength_{slot}")], batch.device)
            batch.index_copy_(1, at, _APPLY[OPERATIONS[operation]](batch.index_select(1, at), strength))


def _moved(batch: Batch, matrices: Float[Tensor, "k 2 3"]) -> Batch:
    """Nearest pixel of the source place that the matrix gives for every place; both in [-1, 1] around the centre."""
    views = batch.transpose(0, 1)  # k 3 s s
    grid = F.affine_grid(matrices, list(views.shape), align_corners=False)
    return F.grid_sample(views, grid, mode="nearest", padding_mode="zeros", align_corners=False).transpose(0, 1)


def _matrices(strength: Strength, entries: dict[tuple[int, int], Tensor]) -> Float[Tensor, "k 2 3"]:
    matrices = torch.eye(2, 3, device=strength.device).repeat(len(strength), 1, 1)
    for (row, at), value in entries.items():
        matrices[:, row, at] = value
    return matrices


def shear_x(batch: Batch, s: Strength) -> Batch:
    """Rows move sideways, by s of their distance from the upper edge."""
    return _moved(batch, _matrices(s, {(0, 1): s, (0, 2): s}))


def shear_y(batch: Batch, s: Strength) -> Batch:
    """Columns move up or down, by s of their distance from the left edge."""
    return _moved(batch, _matrices(s, {(1, 0): s, (1, 2): s}))


def translate_x(batch: Batch, s: Strength) -> Batch:
    """s: share of the side, cut to whole pixels."""
    return _moved(batch, _matrices(s, {(0, 2): 2 * (s * batch.shape[-1]).trunc() / batch.shape[-1]}))


def translate_y(batch: Batch, s: Strength) -> Batch:
    """s: share of the side, cut to whole pixels."""
    return _moved(batch, _matrices(s, {(1, 2): 2 * (s * batch.shape[-1]).trunc() / batch.shape[-1]}))


def rotate(batch: Batch, degrees: Strength) -> Batch:
    """Around the centre, counter-clockwise for positive degrees."""
    angle = torch.deg2rad(degrees)
    cosine, sine = angle.cos(), angle.sin()
    return _moved(batch, _matrices(degrees, {(0, 0): cosine, (0, 1): -sine, (1, 0): sine, (1, 1): cosine}))


def _mixed(batch: Batch, other: Tensor, f: Strength) -> Batch:
    return torch.lerp(other.expand_as(batch), batch, f[:, None, None]).clamp_(0, WHITE)


def brightness(batch: Batch, f: Strength) -> Batch:
    """f x."""
    return _mixed(batch, torch.zeros_like(batch[:1]), f)


def saturation(batch: Batch, f: Strength) -> Batch:
    """Around every pixel's grey."""
    return _mixed(batch, luma(batch)[None], f)


def contrast(batch: Batch, f: Strength) -> Batch:
    """Around every view's mean grey."""
    return _mixed(batch, luma(batch).mean(dim=(1, 2), keepdim=True)[None], f)


def sharpness(batch: Batch, f: Strength) -> Batch:
    """Around a 3 x 3 mean with a centre of 5 / 13; pixels at the border stay."""
    if batch.shape[-1] < 3:
        return batch
    weights = torch.full((1, 1, 3, 3), 1 / 13, device=batch.device)
    weights[0, 0, 1, 1] = 5 / 13
    smooth = batch.clone()
    smooth[..., 1:-1, 1:-1] = F.conv2d(batch.flatten(0, 1)[:, None], weights)[:, 0].unflatten(0, batch.shape[:2])
    return _mixed(batch, smooth, f)


def posterize(batch: Batch, bits: Strength) -> Batch:
    """Whole levels, with `bits` of their 8 bits kept."""
    step = torch.exp2(8 - bits)[:, None, None]
    return ((batch + 0.5).floor() / step).floor() * step


def solarize(batch: Batch, threshold: Strength) -> Batch:
    """Values from `threshold` (0-1 of white) on are inverted."""
    return torch.where(batch >= (threshold * WHITE)[:, None, None], WHITE - batch, batch)


def autocontrast(batch: Batch, unused: Strength) -> Batch:
    """Every channel is stretched to 0-255; a flat one stays."""
    low, high = batch.amin(dim=(2, 3), keepdim=True), batch.amax(dim=(2, 3), keepdim=True)
    stretched = (batch - low) * (WHITE / (high - low).clamp(min=1e-6))
    return torch.where(high > low, stretched.clamp_(0, WHITE), batch)


def equalize(batch: Batch, unused: Strength) -> Batch:
    """Histogram equalisation of whole levels, by channel, with Pillow's rounding."""
    levels = (batch + 0.5).floor().clamp_(0, WHITE).long().flatten(2)  # 3 k (s s)
    channels = 3 * batch.shape[1]
    # not `bincount`, which waits for its own length
    histogram = torch.zeros(channels, 256, dtype=torch.long, device=batch.device)
    histogram.scatter_add_(1, levels.view(channels, -1), torch.ones_like(levels).view(channels, -1))
    highest = 255 - (histogram.flip(1) > 0).int().argmax(dim=1, keepdim=True)  # last level in use
    step = (histogram.sum(dim=1, keepdim=True) - histogram.gather(1, highest)) // 255
    before = histogram.cumsum(dim=1) - histogram
    table = ((before + step // 2) // step.clamp(min=1)).clamp(0, 255)
    table = torch.where(step > 0, table, torch.arange(256, device=batch.device))
    return table.gather(1, levels.view(channels, -1)).view(batch.shape).to(batch.dtype)


_APPLY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
    "rotate": rotate,
    "brightness": brightness,
    "saturation": saturation,
    "contrast": contrast,
    "sharpness": sharpness,
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": autocontrast,
    "equalize": equalize,
}
