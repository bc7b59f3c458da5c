"""Several views of one image as one vector."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def mean_of_views(views: Sequence[Float[Tensor, "n d"]]) -> Float[Tensor, "n d"]:
    """Mean of the unit vectors of m views (Jeon et al. 2026, eq. 4), in float32 at least.

    Its length, in [0, 1], says how far the views agree; its direction is that of Fea_avg's features and of the von
    Mises-Fisher estimate.
    """
    return torch.stack([F.normalize(_wide(view), dim=1) for view in views]).mean(dim=0)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
