"""Candidate views of a batch of images: their recipes, and their embeddings, each view rendered and embedded once."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor

from viewkit.pipelines.models.estimator import Embeddings, Estimator
from viewkit.pipelines.seeds import row_ids
from viewkit.pipelines.views.policy import Colour, Interpolation, Policy
from viewkit.pipelines.views.recipe import column
from viewkit.pipelines.views.render import render
from viewkit.pipelines.views.sample import Pipelines, sample_recipes
from viewkit.pipelines.vs2fi.matching import require_same
from viewkit.shards.codecs import decode_image

ORIGINAL, GENERATED = 0, 1
"""Values of the recipe's field `source`."""

ROWS_PER_BATCH = 32
"""Images whose views are embedded in one forward pass. Fixed: kernels choose their order of summation by the size of
a batch, so another size could change a similarity in its last bit. The last batch of a shard is padded to it."""


def load_image(fields: Mapping[str, bytes], device: str) -> UInt8[Tensor, "h w 3"]:
    """The row's one image, 0-255 RGB, on the device. `DataError` when it cannot be decoded."""
    return torch.from_numpy(decode_image(fields)).to(device)


def sizes_px(images: Sequence[Tensor]) -> Int64[np.ndarray, "n 2"]:
    """(height, width) of every image."""
    return np.array([image.shape[:2] for image in images], dtype=np.int64).reshape(-1, 2)


def sample_candidates(
    policy: Policy,
    keys: Sequence[str],
    sizes: Int64[np.ndarray, "n 2"],
    *,
    seed: int,
    stage: str,
    round: int,
    num_views: int,
    rounds: int = 1,
    pipelines: Pipelines = "random",
    source: Int64[np.ndarray, "n v"] | None = None,
    generated_sizes: Int64[np.ndarray, "n 2"] | None = None,
) -> Float32[np.ndarray, "n v p"]:
    """Recipes of the candidate views of one round; with "random", each view takes T1 or T2 by chance (VS-2FI Alg. 1).

    source: `ORIGINAL` or `GENERATED` for every view; generated_sizes: (height, width) px of the generated images.
    A view of the generated image has the draw it would have had on the original, fitted to the other image's shape.
    """

    def draw(shape: Int64[np.ndarray, "n 2"]) -> Float32[np.ndarray, "n v p"]:
        ids = row_ids(keys)
        return sample_recipes(
            policy,
            ids,
            shape,
            seed=seed,
            stage=stage,
            round=round,
            rounds=rounds,
            num_views=num_views,
            pipelines=pipelines,
        )

    recipes = draw(sizes)
    if source is not None and generated_sizes is not None:
        recipes = np.where(source[..., None] == GENERATED, draw(generated_sizes), recipes)
        recipes[..., column("source")] = source
    return recipes


def embed_candidates(
    estimator: Estimator,
    images: Sequence[Tensor],
    recipes: Float32[np.ndarray, "n v p"],
    image_index: Int64[np.ndarray, "n v"],
    interpolation: Interpolation = "bilinear",
) -> tuple[Float[Tensor, "n v d"], Float[Tensor, "n v e d2"]]:
    """Unit-norm embeddings of the views of at most `ROWS_PER_BATCH` rows: the head's, and every exit's.

    images: uint8 [h w 3] on the estimator's device; image_index: which of them each view is cut from.
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


def colour(values: Sequence[float]) -> Colour:
    """Three numbers: red, green, blue."""
    red, green, blue = values
    return red, green, blue


def check_policy(stage: str, estimator: Estimator, policy: Policy, side_px: int | None) -> None:
    """`RefusedError` unless the views to be scored look like those the estimator was trained with.

    side_px: the side asked for, None for the estimator's own. Blur scales along, so a policy fits every side.
    """
    ours = {"side_px": estimator.side_px, "mean": estimator.mean, "std": estimator.std}
    theirs = {"side_px": side_px or estimator.side_px, "mean": policy.mean, "std": policy.std}
    remedy = "use the policy and side it was trained with, or train it again"
    require_same(stage, "the estimator", ours, f"policy '{policy.name}'", theirs, remedy)
