"""Patches that show one colour only, such as the bars of letterboxed images.

They lie at the border and are all alike, so they would decide on their own which end of the component the centre leans
to: the end of everything that is no bar.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LARGEST_RANGE = 2.0
"""Grey levels between the darkest and the brightest pixel of a flat patch: JPEG leaves some."""


def flat_patches(
    x: Float[Tensor, "n 3 s s"], std: tuple[float, float, float], grid: tuple[int, int]
) -> Bool[Tensor, "n gh gw"]:
    """x: an encoder's input, grey levels / 255 / std (less a mean). grid: rows and columns of its tokens."""
    n, channels, height, width = x.shape
    gh, gw = grid
    rows, columns = height // gh, width // gw
    x = x[:, :, : gh * rows, : gw * columns].float()
    patches = x.reshape(n, channels, gh, rows, gw, columns)
    spread = patches.amax(dim=(3, 5)) - patches.amin(dim=(3, 5))  # n 3 gh gw
    levels = spread * torch.tensor(std, device=x.device)[:, None, None] * 255
    return (levels <= LARGEST_RANGE).all(dim=1)
