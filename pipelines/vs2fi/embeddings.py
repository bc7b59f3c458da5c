"""What the frozen estimator makes of candidate views: each view rendered once and embedded once, in fixed batches."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from viewkit.pipelines.models.estimator import Embeddings, Estimator
from viewkit.pipelines.views.policy import Interpolation, Policy, colour
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.vs2fi.matching import require_same
from viewkit.shards.spans import spanned

ROWS_PER_BATCH = 32
"""Images whose views are embedded in one forward pass. Fixed: kernels choose their order of summation by the size of
a batch, so another size could change a similarity in its last bit. The last batch of a shard is padded to it."""


@spanned("batch", is_unit=True)
def embed_candidates(
    estimator: Estimator,
    images: Sequence[Tensor],
    recipes: Float32[np.ndarray, "n v p"],
    image_index: Int64[np.ndarray, "n v"],
    interpolation: Interpolation = "bilinear",
) -> tuple[Float[Tensor, "n v d"], Float[Tensor, "n v e d2"]]:
    """Unit-norm embeddings of the views of at most `ROWS_PER_BATCH` rows: the head's, and every exit's.

    images: uint8 [h w 3] on the estimator's device; image_index: which of them each view is cropped from.
    Views are rendered at the estimator's side and normalisation, and always fill a whole batch.
    """
    n, num_views = recipes.shape[:2]
    views = render(
        images,
        recipes.reshape(n * num_views, -1),
        image_index.reshape(-1),
        side_px=estimator.side_px,
        mean=colour(estimator.mean),
        std=colour(estimator.std),
        interpolation=interpolation,
    )
    padding = views.new_zeros((ROWS_PER_BATCH - n) * num_views, *views.shape[1:])
    embedded: Embeddings = estimator.embed(torch.cat([views, padding]) if len(padding) else views)
    top, exits = embedded.top[: n * num_views], embedded.exits[: n * num_views]
    return top.unflatten(0, (n, num_views)), exits.unflatten(0, (n, num_views))


def check_policy(stage: str, estimator_px: int, policy: Policy, side_px: int | None) -> None:
    """`RefusedError` unless the views to be scored have the side of those the estimator was trained with.

    estimator_px: that side. side_px: the side asked for, None for the estimator's own. Blur scales along, so a policy
    fits every side. Its mean and std do not matter: `embed_candidates` gives the estimator views that are normalised
    with its own.
    """
    ours = {"side_px": estimator_px}
    theirs = {"side_px": side_px or estimator_px}
    remedy = "use the policy and side it was trained with, or train it again"
    require_same(stage, "the estimator", ours, f"policy '{policy.name}'", theirs, remedy)
