"""The pairs of an image's views: their order, and their similarities in every exit (docs/method.md, V1)."""

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from viewkit.pipelines.engine.transfer import to_device


def pair_index(num_views: int) -> Int64[np.ndarray, "c 2"]:
    """All M (M - 1) / 2 unordered pairs of M views, lexicographic: (0, 1), (0, 2), ..., (1, 2), ...

    The one order of pairs: every array with an axis `c` has it, in columns and in memory.
    """
    return np.stack(np.triu_indices(num_views, k=1), axis=1).astype(np.int64)


def pair_similarities(z: Float[Tensor, "n v e d"]) -> Float[Tensor, "n c e"]:
    """Cosine of every pair of views, exit by exit; z has unit norm along d. In fp32, whatever z's type.

    A plain sum of products instead of a Gram matrix: the result for a pair then depends on its two views alone, is
    the same in either order, and its cost is negligible beside the forward pass that gave z.
    """
    first, second = to_device(pair_index(z.shape[1]), z.device).unbind(1)
    z = z.float()
    return (z[:, first] * z[:, second]).sum(-1)
