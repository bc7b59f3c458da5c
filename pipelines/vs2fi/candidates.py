"""Recipes of the candidate views of a batch of images (VS-2FI, Alg. 1)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import GENERATED, SOURCE
from viewkit.pipelines.views.sample import Pipelines, sample_recipes


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
    """Recipes of the candidate views of one round; with "random", each view follows T1 or T2 by chance.

    source: `ORIGINAL` or `GENERATED` for every view; sizes, generated_sizes: (height, width) px of the two images.
    A view of the generated image has the parameters it would have had on the original, fitted to the other shape.
    """

    def sample(shape: Int64[np.ndarray, "n 2"]) -> Float32[np.ndarray, "n v p"]:
        return sample_recipes(
            policy,
            row_ids(keys),
            shape,
            seed=seed,
            stage=stage,
            round=round,
            rounds=rounds,
            num_views=num_views,
            pipelines=pipelines,
        )

    recipes = sample(sizes)
    if source is not None and generated_sizes is not None:
        recipes = np.where(source[..., None] == GENERATED, sample(generated_sizes), recipes)
        recipes[..., SOURCE] = source
    return recipes
