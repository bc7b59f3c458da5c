"""The column `pairs`: what KEY.scores.npy holds, and a fixed sample of its rows for audit and report."""

import re
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64

from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.recipe import SOURCE, check_recipes, column
from viewkit.shards.codecs import decode_npy
from viewkit.shards.column import Column
from viewkit.shards.commands import writers
from viewkit.shards.errors import ConfigError, DataError

CONSISTENCY, LEVEL, SIMILARITIES = 0, 1, 2
"""Where Semantic Consistency, Alignment Level and the first similarity stand along the last axis of KEY.scores.npy."""

RECIPES, SCORES = "recipes.npy", "scores.npy"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")


def check_pairs_name(stage: str, column: str) -> None:
    """`ConfigError` unless a column of pairs may be called like that: `pairs`, or a name that nothing else has."""
    if not NAME.fullmatch(column) or column in {*writers(), "runs", "report"} - {PAIRS}:
        raise ConfigError(f"{stage}: column is '{column}'; name a new one with letters, digits, '_' and '-'")


def score_names(num_exits: int) -> tuple[str, ...]:
    """Names of the last axis of KEY.scores.npy: the two indicators, the head's similarity, then every exit's."""
    exits = (f"similarity_exit_{level}" for level in range(1, num_exits + 1))
    return ("semantic_consistency", "alignment_level", "similarity_top", *exits)


def num_exits_of(scores: Float32[np.ndarray, "... s"]) -> int:
    """Exits, one per block, of the estimator that gave the scores."""
    return scores.shape[-1] - SIMILARITIES - 1


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """n rows in the order of their keys' hashes, r rounds of v views and their c pairs."""

    keys: list[str]
    recipes: Float32[np.ndarray, "n r v p"]
    scores: Float32[np.ndarray, "n r c s"]

    @property
    def views(self) -> Int64[np.ndarray, "c 2"]:
        """The two views of every pair."""
        return pair_index(self.recipes.shape[2])

    @property
    def consistency(self) -> Float32[np.ndarray, "n r c"]:
        return self.scores[..., CONSISTENCY]

    @property
    def level(self) -> Float32[np.ndarray, "n r c"]:
        return self.scores[..., LEVEL]

    @property
    def similarities(self) -> Float32[np.ndarray, "n r c k"]:
        """The head's, then every exit's."""
        return self.scores[..., SIMILARITIES:]

    @property
    def num_exits(self) -> int:
        return num_exits_of(self.scores)

    @property
    def source(self) -> Int64[np.ndarray, "n r v"]:
        """`ORIGINAL` or `GENERATED`: the image that the view is cropped from."""
        return self.recipes[..., SOURCE].astype(np.int64)

    @property
    def of_one_image(self) -> Bool[np.ndarray, "n r c"]:
        """Pairs whose two views are cropped from the same image, so that their crops can be compared."""
        return np.asarray(self.source[..., self.views[:, 0]] == self.source[..., self.views[:, 1]])

    @property
    def of_originals(self) -> Bool[np.ndarray, "n r c"]:
        """Pairs whose two views are cropped from the original image, whose annotations are known."""
        return np.asarray((self.source[..., self.views] == 0).all(axis=-1))

    @property
    def side_px(self) -> int:
        """Side the views were scored at."""
        return int(self.recipes[..., column("side")].max())


def has_scores(pairs: Column) -> bool:
    """Whether the pairs have indicators: those that `draw` wrote are recipes alone."""
    return pairs.identity.stage != "draw"


def require_scores(pairs: Column) -> None:
    """`DataError` for pairs that were drawn and not scored."""
    if not has_scores(pairs):
        raise DataError(
            f"column '{pairs.name}' was written by 'viewkit draw' and has no scores; write another column with "
            "'viewkit score DATASET --column NAME' and name that one"
        )


def read_pairs(pairs: Column, images: int, rounds: int | None = None) -> ScoredPairs:
    """At most `images` rows of the column, those with the smallest key hashes, and at most `rounds` rounds of each.

    Raises `DataError` for rows of differing shapes, for lacking fields, where there is no row, and for pairs that were
    drawn and not scored.
    """
    require_scores(pairs)
    keys = smallest(pairs.keys(), images)
    if not keys:
        raise DataError(f"column '{pairs.name}' has no rows; see its rejects with 'viewkit status'")
    recipes, scores = [], []
    for key in keys:
        fields = pairs.fields(pairs.place_of[key])
        where = f"column '{pairs.name}', row {key}"
        try:
            recipes.append(check_recipes(decode_npy(fields["recipes.npy"])[:rounds], where))
            scores.append(decode_npy(fields["scores.npy"])[:rounds])
        except KeyError as error:
            raise DataError(f"{where}: lacks {error}; delete the column and write it again") from error
        if (recipes[-1].shape, scores[-1].shape) != (recipes[0].shape, scores[0].shape):
            raise DataError(
                f"{where}: recipes {recipes[-1].shape} and scores {scores[-1].shape}, and row {keys[0]} has "
                f"{recipes[0].shape} and {scores[0].shape}; delete the column and rerun 'viewkit score'"
            )
    return ScoredPairs(keys, np.stack(recipes), np.stack(scores))
