"""The stored pairs that are looked at: recipes and scores of a fixed sample of rows."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64

from viewkit.pipelines.seeds import smallest
from viewkit.pipelines.views.recipe import check_recipes, column
from viewkit.pipelines.vs2fi.pairs import pair_index
from viewkit.pipelines.vs2fi.scores import CONSISTENCY, LEVEL, SIMILARITIES
from viewkit.shards.codecs import decode_npy
from viewkit.shards.column import Column
from viewkit.shards.errors import DataError


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
        return self.scores.shape[-1] - SIMILARITIES - 1

    @property
    def source(self) -> Int64[np.ndarray, "n r v"]:
        """0: the view is cut from the original image, 1: from the generated one."""
        return self.recipes[..., column("source")].astype(np.int64)

    @property
    def of_one_image(self) -> Bool[np.ndarray, "n r c"]:
        """Pairs whose both views are cut from the same image, so that their crops can be compared."""
        return np.asarray(self.source[..., self.views[:, 0]] == self.source[..., self.views[:, 1]])

    @property
    def of_originals(self) -> Bool[np.ndarray, "n r c"]:
        """Pairs whose both views are cut from the original image, whose annotations are known."""
        return np.asarray((self.source[..., self.views] == 0).all(axis=-1))

    @property
    def side_px(self) -> int:
        """Side the views were scored at."""
        return int(self.recipes[..., column("side")].max())


def read_pairs(pairs: Column, images: int, rounds: int | None = None) -> ScoredPairs:
    """At most `images` rows of the column, those with the smallest key hashes, and at most `rounds` rounds of each.

    Raises `DataError` for rows of differing shapes, for lacking fields, and where there is no row.
    """
    keys = smallest(pairs.keys(), images)
    if not keys:
        raise DataError(f"column '{pairs.name}' has no rows; look at its rejects with 'viewkit status'")
    recipes, scores = [], []
    for key in keys:
        fields = pairs.fields(pairs.place_of[key])
        where = f"column '{pairs.name}', row {key}"
        try:
            recipes.append(check_recipes(decode_npy(fields["recipes.npy"])[:rounds], where))
            scores.append(decode_npy(fields["scores.npy"])[:rounds])
        except KeyError as error:
            raise DataError(f"{where}: lacks {error}; rerun 'viewkit score'") from error
        if (recipes[-1].shape, scores[-1].shape) != (recipes[0].shape, scores[0].shape):
            raise DataError(
                f"{where}: recipes {recipes[-1].shape} and scores {scores[-1].shape}, and row {keys[0]} has "
                f"{recipes[0].shape} and {scores[0].shape}; delete the column and rerun 'viewkit score'"
            )
    return ScoredPairs(keys, np.stack(recipes), np.stack(scores))
