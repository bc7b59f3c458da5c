"""Colour of a whole batch, in each view's own order, without a loop over views: for GPUs and small sides.

A batch is [3, m, h, w] float in 0-255, so every channel of every view is one contiguous block. The views are sorted
by how many of brightness, contrast and saturation come before the hue; then each step works on a slice, nothing is
computed to be masked away, and every view takes three blends and one turn of the hue.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.engine.transfer import to_device
from viewkit.pipelines.views.recipe import NO_SOLARIZE, ORDERS, column
from viewkit.pipelines.views.render.colour import LUMA, WHITE

Batch = Float[Tensor, "3 m h w"]

HUE = 3
BEFORE = np.array([order.index(HUE) for order in ORDERS])
"""Blends that come before the hue, by order."""
BLENDS = np.array([[operation for operation in order if operation != HUE] for order in ORDERS])
"""Brightness 0, contrast 1, saturation 2 in the order's sequence: [24, 3]."""


def colour_order(recipes: Float[np.ndarray, "m p"]) -> Int[np.ndarray, " m"]:
    """The sorting that `jitter_batch` needs: most blends before the hue first, views without any jitter last."""
    before = BEFORE[recipes[:, column("order")].astype(np.int64)]
    return np.argsort(np.where(_is_jittered(recipes), -before, 1), kind="stable")


def _is_jittered(recipes: Float[np.ndarray, "m p"]) -> np.ndarray:
    factors = recipes[:, column("brightness") : column("hue") + 1]
    return (factors != np.array([1, 1, 1, 0], dtype=np.float32)).any(axis=1)


def luma(batch: Batch) -> Float[Tensor, "m h w"]:
    """Grey values of every view."""
    return (batch[0] * LUMA[0]).add_(batch[1], alpha=LUMA[1]).add_(batch[2], alpha=LUMA[2])


def jitter_batch(batch: Batch, recipes: Float[np.ndarray, "m p"]) -> None:
    """Jitter in place; `recipes` in the order of `colour_order`."""
    jittered = _is_jittered(recipes)
    count = int(jittered.sum())
    if not count:
        return
    rows = recipes[:count]
    order = rows[:, column("order")].astype(np.int64)
    before, blends = BEFORE[order], BLENDS[order]
    factors = rows[:, column("brightness") : column("hue")]
    used = np.take_along_axis(factors, blends, axis=1)  # count 3, in sequence
    for step in range(3):
        end = int((before > step).sum())
        _blend(batch[:, :end], blends[:end, step], used[:end, step])
    _shift_hue(batch[:, :count], rows[:, column("hue")])
    for step in range(3):
        start = int((before > step).sum())
        _blend(batch[:, start:count], blends[start:, step], used[start:, step])


def _blend(batch: Batch, kinds: Int[np.ndarray, " m"], factors: Float[np.ndarray, " m"]) -> None:
    """x -> clamp(f x + (1 - f) other); other is 0, the view's mean grey, or the pixel's grey."""
    if not len(kinds):
        return
    table = np.stack([factors, np.where(kinds == 1, 1 - factors, 0), np.where(kinds == 2, 1 - factors, 0)])
    f, on_mean, on_pixel = to_device(table.astype(np.float32), batch.device)[:, :, None, None]
    other = luma(batch)
    mean = other.mean(dim=(1, 2), keepdim=True)
    other.mul_(on_pixel).add_(mean * on_mean)
    batch.mul_(f).add_(other).clamp_(0, WHITE)


def _shift_hue(batch: Batch, turns: Float[np.ndarray, " m"]) -> None:
    """As `colour.shift_hue`, for shifts of up to half a turn: the distance on the circle is |3C - ||H' - pC| - 3C||."""
    if not turns.any():
        return
    r, g, b = batch
    inner = torch.minimum(g, b)
    least = torch.minimum(inner, r)
    largest = torch.maximum(torch.maximum(g, b), r)
    chroma = largest - least
    hue = inner.sub_(least).mul_(2).add_(largest).sub_(r)
    across = g - b
    hue = torch.copysign(hue, across).add_(across)
    shift = to_device(turns.astype(np.float32) * 6, batch.device)[:, None, None]
    hue.addcmul_(chroma, shift)
    top = least.add(chroma, alpha=2)
    for channel, centre in enumerate((0.0, 2.0, -2.0)):
        far = hue.sub(chroma, alpha=centre).abs_().sub_(chroma, alpha=3).abs_()
        far.sub_(chroma, alpha=3).abs_()
        torch.clamp(torch.sub(top, far, out=far), least, largest, out=batch[channel])


def grey_batch(batch: Batch, chosen: np.ndarray) -> None:
    """The chosen views become grey, in place."""
    at = to_device(np.flatnonzero(chosen), batch.device)
    if at.numel():
        part = luma(batch.index_select(1, at))
        for channel in range(3):
            batch[channel].index_copy_(0, at, part)


def solarize_batch(batch: Batch, thresholds: Float[np.ndarray, " m"]) -> None:
    """Values from the threshold (0-1 of white) on are inverted, in place; `NO_SOLARIZE` leaves a view alone."""
    chosen = np.flatnonzero(thresholds < NO_SOLARIZE)
    if chosen.size:
        at = to_device(chosen, batch.device)
        limit = to_device(thresholds[chosen].astype(np.float32) * np.float32(WHITE), batch.device)
        part = batch.index_select(1, at)
        batch.index_copy_(1, at, torch.where(part >= limit[:, None, None], WHITE - part, part))
