"""How good a positive pair is: alike in the foreground, different in the background (GenView, sec. 3.4, eq. 10 to 12).

All in fp64: flipping the component's sign then swaps the two features, and a positive factor on the map changes
nothing, both to rounding.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from viewkit.pipelines.pairs.order import pair_index

FLAT = 1e-6
"""A projection that varies by less than this share of its largest size is constant up to rounding."""


def soft_masks(maps: Float[Tensor, "m h w k"], direction: Float64[Tensor, " k"]) -> Float64[Tensor, "m h w"]:
    """Foreground in [0, 1]: the projection on the component, min-max scaled map by map; background is 1 - mask.

    maps: of m views, any scale. direction: the component times its sign, large values are foreground. The projection
    is not centred, which min-max scaling makes immaterial. Where it is constant nothing tells foreground from
    background, and the mask is 1/2 everywhere: both features are then the mean feature, under either sign (the release
    gets a mask of zeros there, and a cosine of 0 with every other foreground).
    """
    scores = maps.double() @ direction
    low, high = scores.amin(dim=(1, 2), keepdim=True), scores.amax(dim=(1, 2), keepdim=True)
    spread = high - low
    constant = spread <= FLAT * scores.abs().amax(dim=(1, 2), keepdim=True)
    scaled = (scores - low) / torch.where(constant, torch.ones_like(spread), spread)
    return torch.where(constant, torch.full_like(scores, 0.5), scaled)


def split_features(maps: Float[Tensor, "m h w k"], masks: Float64[Tensor, "m h w"]) -> Float64[Tensor, "m 2 k"]:
    """Foreground and background feature of every view, z^f and z^b of eq. 10, with unit norm (zero stays zero).

    Only their direction is used, so the sum of eq. 10 and the mean of the release, which divides by the sum of the
    mask, are the same.
    """
    shares = torch.stack([masks, 1 - masks], dim=1)  # m 2 h w
    z = torch.einsum("mshw,mhwk->msk", shares, maps.double())
    norm = z.norm(dim=2, keepdim=True)
    return z / torch.where(norm > 0, norm, torch.ones_like(norm))


def pair_quality(features: Float64[Tensor, "n v 2 k"]) -> Float64[Tensor, "n c"]:
    """q = s^f - s^b of every pair of views, in [-2, 2]: cosine of the foregrounds less cosine of the backgrounds.

    features: foreground and background of every view, unit norm. Pairs are in the order of `pair_index`. A zero feature
    has cosine 0 with everything.
    """
    first, second = torch.from_numpy(pair_index(features.shape[1])).to(features.device).unbind(1)
    s = (features[:, first] * features[:, second]).sum(dim=-1).clamp(-1, 1)  # n c 2
    return s[..., 0] - s[..., 1]
