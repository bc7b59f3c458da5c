"""Colour of one view, in place, in the recipe's order. The CPU's form; `colour_batch` is the GPU's.

A view is [3, side, side] float in 0-255, and stays in a core's cache while it is worked on. Equal to torchvision's
float operations (brightness, contrast, saturation, hue, grey, solarize), which are the same formulas on 0-1.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.views.recipe import ORDERS
from viewkit.pipelines.views.render.buffers import Buffers

LUMA = (0.2989, 0.587, 0.114)
"""ITU-R BT.601 weights, with the digits that torchvision keeps."""
LUMA_SUM = sum(LUMA)
WHITE = 255.0


@dataclass
class Blend:
    """Pending map of a view: x -> a x + g grey(x) + c. Blends that cannot leave 0-255 are merged, not applied.

    Brightness, contrast and saturation with factors up to 1 are convex, so they need no clamp and compose; at the
    end what is left is folded into the normalisation.
    """

    a: float = 1.0
    g: float = 0.0
    c: float = 0.0

    def scale(self, factor: float) -> None:
        self.a, self.g, self.c = self.a * factor, self.g * factor, self.c * factor

    def grey_of(self) -> tuple[float, float]:
        """grey(this(x)) = first * grey(x) + second."""
        return self.a + self.g * LUMA_SUM, self.c * LUMA_SUM

    @property
    def is_identity(self) -> bool:
        return self.a == 1.0 and self.g == 0.0 and self.c == 0.0


def grey(view: Float[Tensor, "3 h w"], out: Float[Tensor, "h w"]) -> Float[Tensor, "h w"]:
    """The view's luma."""
    torch.mul(view[0], LUMA[0], out=out)
    return out.add_(view[1], alpha=LUMA[1]).add_(view[2], alpha=LUMA[2])


def apply_blend(view: Float[Tensor, "3 h w"], blend: Blend, buffers: Buffers) -> None:
    """Bring a pending map into the view."""
    if blend.is_identity:
        return
    luma = grey(view, buffers.planes[0]) if blend.g else None
    if blend.a != 1.0:
        view.mul_(blend.a)
    if luma is not None:
        luma.mul_(blend.g)
        if blend.c:
            luma.add_(blend.c)
        view.add_(luma)
    elif blend.c:
        view.add_(blend.c)
    blend.a, blend.g, blend.c = 1.0, 0.0, 0.0


def jitter(
    view: Float[Tensor, "3 h w"],
    factors: tuple[float, float, float, float],
    order: int,
    blend: Blend,
    buffers: Buffers,
) -> None:
    """Brightness, contrast, saturation (factors) and hue (turns), in an order of `ORDERS`.

    `blend` takes what can wait; where a factor above 1 may leave 0-255, it is applied and cut.
    """
    for operation in ORDERS[order]:
        factor = factors[operation]
        if operation == 3:
            if factor:
                apply_blend(view, blend, buffers)
                shift_hue(view, factor, buffers)
            continue
        if factor == 1.0:
            continue
        if operation == 0:
            blend.scale(factor)
        elif operation == 1:
            first, second = blend.grey_of()
            mean = first * float(grey(view, buffers.planes[0]).mean()) + second
            blend.scale(factor)
            blend.c += (1 - factor) * mean
        else:
            first, second = blend.grey_of()
            blend.scale(factor)
            blend.g += (1 - factor) * first
            blend.c += (1 - factor) * second
        if factor > 1:
            apply_blend(view, blend, buffers)
            view.clamp_(0, WHITE)


def make_grey(view: Float[Tensor, "3 h w"], blend: Blend, buffers: Buffers) -> None:
    """All three channels become the luma; the pending map goes along."""
    first, second = blend.grey_of()
    view.copy_(grey(view, buffers.planes[0]))
    blend.a, blend.g, blend.c = first, 0.0, second


def shift_hue(view: Float[Tensor, "3 h w"], turns: float, buffers: Buffers) -> None:
    """Turn the HSV hue, without the divisions.

    With C = max - min, hue times C is continuous in the colours: H = (g - b) + sign(g - b) [(max - r) + 2 (min(g, b)
    - min)], in [-3C, 3C] around red. A channel centred at hue p is min + clamp(2C - distance, 0, C), distance being
    that of H + 6C turns from pC on the circle of length 6C. Whole thirds of a turn are a permutation of the channels,
    the rest is at most a sixth, where the distance is 3C - ||H' - pC| - 3C| wherever the clamp does not hide it.
    """
    thirds = round(turns * 3)
    rest = 6 * (turns - thirds / 3)  # in units of C, within 1
    r, g, b = (view[(channel - thirds) % 3] for channel in range(3))
    largest, least, chroma, hue, base, work = buffers.planes
    torch.minimum(g, b, out=work)
    torch.minimum(work, r, out=least)
    torch.maximum(g, b, out=largest)
    torch.maximum(largest, r, out=largest)
    torch.sub(largest, least, out=chroma)
    torch.sub(work, least, out=hue).mul_(2.0)
    hue.add_(largest).sub_(r)
    torch.sub(g, b, out=work)
    torch.copysign(hue, work, out=hue)
    hue.add_(work).add_(chroma, alpha=rest)
    torch.sub(least, chroma, out=base)
    for channel, centre in enumerate((0.0, 2.0, -2.0)):
        out = view[channel]
        torch.sub(hue, chroma, alpha=centre, out=work).abs_()
        work.sub_(chroma, alpha=3.0).abs_().add_(base)
        torch.clamp(work, least, largest, out=out)


def solarize(view: Float[Tensor, "3 h w"], threshold: float) -> None:
    """Values from `threshold` (0-255) on are inverted."""
    view.copy_(torch.where(view >= threshold, WHITE - view, view))
