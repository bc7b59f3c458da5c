"""Which two of a row's candidate views become its pair. Draws nothing: the uniforms come from `sample_selection`.

All selections share one face: candidates in, the index of one of the c = v (v - 1) / 2 pairs out. Pairs are ordered
(0, 1), (0, 2), ..., (v - 2, v - 1). **Ties go to the earlier pair.** Which of the two becomes the first view is then
decided at random (`order_pairs`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Float, Int

from viewkit.pipelines.views.boxes import overlap
from viewkit.shards.errors import ConfigError, DataError


def pairs_of(num_views: int) -> Int[np.ndarray, "c 2"]:
    """All unordered pairs of views, lexicographic."""
    return np.array(list(combinations(range(num_views), 2)), dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What is known of n rows' candidate pairs. A selection takes what it needs and refuses to guess the rest."""

    num_views: int
    boxes: Float[np.ndarray, "n v 4"] | None = None
    """Crops (top, left, height, width) in fractions."""
    losses: Float[np.ndarray, "n c"] | None = None
    consistency: Float[np.ndarray, "n c"] | None = None
    """Semantic Consistency (VS-2FI eq. 2), in [0, 1]."""
    levels: Float[np.ndarray, "n c"] | None = None
    """Alignment Level (VS-2FI eq. 5), in [1, number of exits + 1]."""
    k_sc: float = 0.75
    k_al: float = 7.0


def select_random(candidates: Candidates, u: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Any pair, uniformly."""
    return (u * len(pairs_of(candidates.num_views))).astype(np.int64)


def select_first(candidates: Candidates, u: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Views 0 and 1: the plain baseline."""
    return np.zeros(len(u), dtype=np.int64)


def select_lowest_iou(candidates: Candidates, u: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The pair whose crops overlap least (Hard View Selection, sec. 5.1)."""
    boxes = _needed(candidates.boxes, "lowest_iou", "boxes")
    first, second = pairs_of(candidates.num_views).T
    return overlap(boxes[:, first], boxes[:, second]).argmin(axis=1)


def select_hard(candidates: Candidates, u: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The pair with the highest loss (Hard View Selection, eq. 2)."""
    return _needed(candidates.losses, "hard", "losses").argmax(axis=1)


def select_easy(candidates: Candidates, u: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The pair with the lowest loss (Hard View Selection, appendix: the cooperative case)."""
    return _needed(candidates.losses, "easy", "losses").argmin(axis=1)


def select_vs2fi(candidates: Candidates, u: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """A random one of the pairs that are consistent and well aligned (VS-2FI, Alg. 1)."""
    consistency = _needed(candidates.consistency, "vs2fi", "consistency")
    levels = _needed(candidates.levels, "vs2fi", "levels")
    return _pick(vs2fi_survivors(consistency, levels, candidates.k_sc, candidates.k_al), u)


def vs2fi_survivors(
    consistency: Float[np.ndarray, "n c"], levels: Float[np.ndarray, "n c"], k_sc: float, k_al: float
) -> Bool[np.ndarray, "n c"]:
    """Pairs that both filters keep; at least one in every row (VS-2FI, Alg. 1).

    Consistency first, with min(k_sc, the row's maximum); then level with min(k_al, the maximum **over the
    survivors**). With both maxima over all candidates, as Alg. 1 can be read, nothing may be left: a pair with
    (0.995, level 3) beside one with (0.5, level 9).
    """
    for name, values in (("consistency", consistency), ("levels", levels)):
        if (wrong := np.flatnonzero(np.isnan(values).any(axis=1))).size:
            raise DataError(f"vs2fi: {name} of row {wrong[0]} is not a number; score the pairs again")
    kept = consistency >= np.minimum(k_sc, consistency.max(axis=1, keepdims=True))
    highest = np.where(kept, levels, -np.inf).max(axis=1, keepdims=True)
    return kept & (levels >= np.minimum(k_al, highest))


def _pick(kept: Bool[np.ndarray, "n c"], u: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """One of the kept, uniformly: the (floor(u * number) + 1)-th of them."""
    rank = (u * kept.sum(axis=1)).astype(np.int64)
    return (kept.cumsum(axis=1) > rank[:, None]).argmax(axis=1)


def _needed(values: np.ndarray | None, selection: str, name: str) -> np.ndarray:
    if values is None:
        raise ConfigError(f"selection '{selection}' needs {name} of the candidate pairs, and the column has none")
    return values


Selection = Callable[[Candidates, np.ndarray], np.ndarray]
SELECTIONS: Mapping[str, Selection] = MappingProxyType(
    {
        "first": select_first,
        "random": select_random,
        "lowest_iou": select_lowest_iou,
        "hard": select_hard,
        "easy": select_easy,
        "vs2fi": select_vs2fi,
    }
)


def order_pairs(chosen: Int[np.ndarray, " n"], num_views: int, u: Float[np.ndarray, " n"]) -> Int[np.ndarray, "n 2"]:
    """View indices of the chosen pairs; swapped where u < 1/2."""
    pairs = pairs_of(num_views)[chosen]  # n 2
    return np.where((u < 0.5)[:, None], pairs[:, ::-1], pairs)


def select_pairs(selection: str, candidates: Candidates, draws: Float[np.ndarray, "n 4"]) -> Int[np.ndarray, "n 2"]:
    """The two views of every row, in their final order.

    draws: `sample_selection`; column 0 decides among equals, column 1 the order.
    Raises `ConfigError` for an unknown selection, for fewer than two views, and where an indicator is missing.
    """
    if selection not in SELECTIONS:
        raise ConfigError(f"selection is {selection!r}; needed one of {', '.join(SELECTIONS)}")
    if candidates.num_views < 2:
        raise ConfigError(f"num_views is {candidates.num_views}; a pair needs at least 2")
    chosen = SELECTIONS[selection](candidates, draws[:, 0])
    return order_pairs(chosen, candidates.num_views, draws[:, 1])
