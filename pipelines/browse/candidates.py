"""The pairs that the page shows: whole groups, each all pairs of an image's views in one round.

Alg. 1 of VS-2FI compares the pairs of a group with each other, so a group is never cut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float32, Int64

from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.pairs.column import RECIPES, SCORES, has_scores
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.recipe import SOURCE, check_recipes, column
from viewkit.shards.codecs import decode_npy
from viewkit.shards.column import Column
from viewkit.shards.errors import DataError


@dataclass(frozen=True, eq=False)
class Groups:
    """g groups of v views and their c pairs, in the order of `pair_index`.

    keys: of the images. places: round of every group, or step of a run. scores: None where there are none. extra:
    further numbers of the pairs, by name. chosen: which pair a run trained on; None for stored ones.
    run_of: which of several runs logged a group; None where there is one, or none.
    """

    keys: list[str]
    places: Int64[np.ndarray, " g"]
    recipes: Float32[np.ndarray, "g v p"]
    scores: Float32[np.ndarray, "g c s"] | None = None
    extra: Mapping[str, Float32[np.ndarray, "g c"]] = field(default_factory=dict)
    chosen: Bool[np.ndarray, "g c"] | None = None
    run_of: Int64[np.ndarray, " g"] | None = None

    @property
    def views(self) -> Int64[np.ndarray, "c 2"]:
        """The two views of every pair."""
        return pair_index(self.recipes.shape[1])

    @property
    def source(self) -> Int64[np.ndarray, "g v"]:
        """`ORIGINAL` or `GENERATED`: the image that a view is cropped from."""
        return self.recipes[..., SOURCE].astype(np.int64)

    @property
    def side_px(self) -> int:
        """Side that the views were sampled for."""
        return int(self.recipes[..., column("side")].max())


def read_groups(pairs: Column, points: int) -> Groups:
    """Groups of about `points` pairs: round 0 of the rows with the smallest key hashes, then round 1 and so on.

    `DataError` for a column without rows, and for rows of lacking fields or differing shapes.
    """
    if not pairs.num_rows:
        raise DataError(f"column '{pairs.name}' has no rows; see its rejects with 'viewkit status'")
    scored = has_scores(pairs)
    keys = smallest(pairs.keys(), max(1, points))
    first = _arrays(pairs, keys[0], scored)
    rounds, views = first[0].shape[:2]
    wanted = max(1, points // (views * (views - 1) // 2))
    keys = keys[: min(wanted, len(keys))]
    rows = [first]
    for key in keys[1:]:
        rows.append(_arrays(pairs, key, scored))
        if [each.shape for each in rows[-1]] != [each.shape for each in first]:
            raise DataError(
                f"column '{pairs.name}', row {key}: arrays of other shapes than row {keys[0]} has; delete the column "
                f"and rerun 'viewkit {pairs.identity.stage}'"
            )
    places = [(row, round_) for round_ in range(rounds) for row in range(len(keys))][:wanted]
    stacked = [np.stack([rows[row][part][round_] for row, round_ in places]) for part in range(len(first))]
    return Groups(
        keys=[keys[row] for row, _ in places],
        places=np.array([round_ for _, round_ in places]),
        recipes=stacked[0],
        scores=stacked[1] if scored else None,
    )


def joined(parts: Sequence[Groups], where: str) -> Groups:
    """The logged groups of several runs, one after the other. `DataError` unless all compared as many views."""
    views = [part.recipes.shape[1] for part in parts]
    if len(set(views)) > 1:
        raise DataError(f"{where} compared {' and '.join(map(str, views))} views of an image; browse them one by one")
    return Groups(
        keys=[key for part in parts for key in part.keys],
        places=np.concatenate([part.places for part in parts]),
        recipes=np.concatenate([part.recipes for part in parts]),
        extra={name: np.concatenate([part.extra[name] for part in parts]) for name in parts[0].extra},
        chosen=np.concatenate([part.chosen for part in parts if part.chosen is not None]),
        run_of=np.repeat(np.arange(len(parts)), [len(part.keys) for part in parts]),
    )


def _arrays(pairs: Column, key: str, scored: bool) -> list[np.ndarray]:
    """Recipes [r v p] and, where there are any, scores [r c s] of a row."""
    fields = pairs.fields(pairs.place_of[key])
    where = f"column '{pairs.name}', row {key}"
    try:
        found = [check_recipes(decode_npy(fields[RECIPES]), where)]
        if scored:
            found.append(decode_npy(fields[SCORES]))
    except KeyError as error:
        raise DataError(f"{where}: lacks {error}; rerun 'viewkit {pairs.identity.stage}'") from error
    rounds, views = found[0].shape[:2]
    if scored and (found[1].shape[:2] != (rounds, views * (views - 1) // 2)):
        raise DataError(
            f"{where}: scores of shape {found[1].shape} for recipes of shape {found[0].shape}; delete the column and "
            "rerun 'viewkit score'"
        )
    return found
