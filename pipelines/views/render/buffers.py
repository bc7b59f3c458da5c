"""Working memory of one call of `render` on a CPU, used again for every view.

First touch of fresh pages costs more than most operations on them.
"""

import torch
from jaxtyping import Float
from torch import Tensor


class Buffers:
    """Memory for views of one side. Holds no results: whatever is taken from it is overwritten by the next view."""

    def __init__(self, side_px: int) -> None:
        self.view = torch.empty(3, side_px, side_px)
        self.planes = [torch.empty(side_px, side_px) for _ in range(6)]
        self._flat: dict[str, Tensor] = {}

    def flat(self, name: str, count: int) -> Float[Tensor, " {count}"]:
        """`count` floats under a name; zeros when new, else whatever was left there."""
        found = self._flat.get(name)
        if found is None or found.numel() < count:
            found = self._flat[name] = torch.zeros(count)
        return found[:count]
