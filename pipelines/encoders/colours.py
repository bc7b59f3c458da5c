"""The encoder `colour`: where an image has which colours. No weights, nothing trained: a judge that no other encoder
can have taught, of what a layman sees first."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, one_hot

from viewkit.pipelines.encoders.encoder import Encoder, EncoderRequest
from viewkit.pipelines.encoders.preprocess import Preprocess

SIDE_PX, CELLS, BINS = 64, 4, 4
"""Side of its views; cells of the grid a side; bins of each channel of the histogram."""
HALF = (0.5, 0.5, 0.5)


class ColourEncoder(Encoder):
    """Tokens: mean and standard deviation of each channel in each cell of a 4 x 4 grid. Features: all tokens in a row,
    then the square roots of the shares of 4 x 4 x 4 colours (their dot product is the Bhattacharyya coefficient)."""

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        cell = x.shape[2] // CELLS
        mean = avg_pool2d(x, cell)
        std = (avg_pool2d(x * x, cell) - mean * mean).clamp(min=0).sqrt()
        tokens = torch.cat([mean, std], dim=1).flatten(2).mT  # n (h w) k
        bins = ((x + 1) / 2 * BINS).long().clamp(0, BINS - 1)  # inputs lie in -1 ... 1
        colours = (bins[:, 0] * BINS + bins[:, 1]) * BINS + bins[:, 2]
        shares = one_hot(colours.flatten(1), BINS**3).to(x.dtype).mean(dim=1)
        return tokens, torch.cat([tokens.flatten(1) / CELLS, shares.sqrt()], dim=1)


def open_colours(asked: EncoderRequest) -> Encoder:
    """The same on every machine and for every dataset."""
    preprocess = Preprocess(SIDE_PX, SIDE_PX, HALF, HALF)
    return ColourEncoder(nn.Identity(), preprocess, name=asked.name, device=asked.device, precision=asked.precision)
