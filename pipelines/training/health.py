"""Numbers that tell whether features keep their dimensions while a training runs."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

ROWS = 512
"""At most so many rows are looked at: the cost grows with their cube."""


@torch.no_grad()
def rank_me(features: Float[Tensor, "n d"]) -> float:
    """exp of the entropy of the singular values, normalised to sum 1 (Garrido et al. 2023, eq. 1): 1 ... min(n, d).

    The effective rank of the features: 1 when they lie on a line through 0. Computed on the first `ROWS` rows. NaN
    where a feature is not finite.
    """
    z = features[:ROWS].float()
    if not z.isfinite().all():
        return float("nan")
    gram = z @ z.T if len(z) <= z.shape[1] else z.T @ z
    sigma = torch.linalg.eigvalsh(gram.double()).clamp(min=0).sqrt()
    p = sigma / sigma.sum() + 1e-7
    return float(torch.exp(-(p * p.log()).sum()))


@torch.no_grad()
def feature_std(features: Float[Tensor, "n d"]) -> float:
    """Standard deviation over rows of each dimension of the unit-norm features, averaged, times sqrt(d): 1 on an
    evenly filled sphere, 0 when all rows are equal (Chen & He 2021, sec. 4.1)."""
    z = F.normalize(features.float(), dim=1)
    return float(z.std(dim=0, correction=0).mean() * z.shape[1] ** 0.5)
