"""How good a positive pair is: alike in the foreground, different in the background (GenView, eq. 11 and 12)."""

import torch
from jaxtyping import Float64
from torch import Tensor

from viewkit.pipelines.vs2fi.pairs import pair_index


def pair_quality(features: Float64[Tensor, "n v 2 k"]) -> Float64[Tensor, "n c"]:
    """q = s^f - s^b of every pair of views, in [-2, 2]: cosine of the foregrounds less cosine of the backgrounds.

    features: foreground and background of every view, unit norm. Pairs are in the order of `pair_index`. A zero feature
    has cosine 0 with everything.
    """
    first, second = torch.from_numpy(pair_index(features.shape[1])).to(features.device).unbind(1)
    s = (features[:, first] * features[:, second]).sum(dim=-1).clamp(-1, 1)  # n c 2
    return s[..., 0] - s[..., 1]
