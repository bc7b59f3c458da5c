"""Recipes of one round of candidate views, for `score` (VS-2FI, Alg. 1) and `draw` (GenView)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pairs.generated import DrawnFrom
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import GENERATED, ORIGINAL, SOURCE
from viewkit.pipelines.views.sample import Pipelines, sample_recipes
from viewkit.shards.errors import ConfigError

Size = tuple[int, int]


@dataclass(frozen=True)
class RowSizes:
    """(height, width) in px of a row's image and of its generated one, None where there is none or none is needed."""

    key: str
    original: Size
    generated: Size | None = None


def check_candidates(policy: Policy, num_views: int, candidates: DrawnFrom) -> None:
    """`ConfigError` where the policy binds views of a pair and other views could be paired.

    Only views (0, 1), (2, 3) ... of one image are sampled jointly or under an IoU ceiling.
    """
    bound = [f"{joint.parameter} joint" for joint in policy.joint]
    bound += ["the overlap of a pair limited (iou)"] if policy.iou is not None else []
    if bound and num_views != 2:
        raise ConfigError(
            f"num_views is {num_views} and {' and '.join(bound)} in policy '{policy.name}': any two of the views may "
            "become a pair, and only views (0, 1), (2, 3) ... are sampled jointly; set --num-views 2, or take another "
            "policy"
        )
    if policy.iou is not None and candidates != "original":
        raise ConfigError(
            f"candidates is '{candidates}' and policy '{policy.name}' limits the overlap of a pair (iou), which only "
            "views of one original have; set --candidates original, or take another policy"
        )


def sample_round(
    policy: Policy,
    rows: Sequence[RowSizes],
    *,
    seed: int,
    stage: str,
    round: int,
    rounds: int,
    num_views: int,
    candidates: DrawnFrom = "original",
    pipelines: Pipelines = "random",
) -> Float32[np.ndarray, "n v p"]:
    """Recipes of one round; a row without a generated image has all its views of the original.

    pipelines: "random": each view follows T1 or T2 by chance (VS-2FI, Alg. 1); "alternate": T1 and T2 in turn.
    """
    sizes = _sizes([row.original for row in rows])
    generated = _sizes([row.generated or row.original for row in rows])
    lacking = np.array([row.generated is None for row in rows])[:, None]
    keys = [row.key for row in rows]
    if candidates == "either":
        recipes = sample_recipes(
            policy,
            row_ids(keys),
            sizes,
            seed=seed,
            stage=stage,
            round=round,
            rounds=rounds,
            num_views=num_views,
            pipelines=pipelines,
            p_generated=1.0,
            generated_sizes=generated,
        )
        recipes[..., SOURCE] = np.where(lacking, ORIGINAL, recipes[..., SOURCE])
        return recipes
    return sample_candidates(
        policy,
        keys,
        sizes,
        seed=seed,
        stage=stage,
        round=round,
        rounds=rounds,
        num_views=num_views,
        pipelines=pipelines,
        source=np.where(lacking, ORIGINAL, view_sources(candidates, num_views)).astype(np.int64),
        generated_sizes=generated,
    )


def view_sources(candidates: DrawnFrom, num_views: int) -> Int64[np.ndarray, " v"]:
    """`ORIGINAL` or `GENERATED` for every view of a row that has a generated image; not for `either`."""
    views = np.arange(num_views)
    if candidates == "mixed":
        return np.where(views % 2 == 1, GENERATED, ORIGINAL).astype(np.int64)
    return np.full_like(views, GENERATED if candidates == "generated" else ORIGINAL)


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


def _sizes(sizes: Sequence[Size]) -> Int64[np.ndarray, "n 2"]:
    return np.array(sizes, dtype=np.int64).reshape(-1, 2)
