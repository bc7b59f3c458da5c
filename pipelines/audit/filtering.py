"""What the two filters take away, and how that changes with their thresholds (VS-2FI, sec. 4.4 and figure 8)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from viewkit.pipelines.pairs.select import vs2fi_survivors

GAMMAS = (1 / 512, 1 / 256, 1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)
SHOWN = ("surviving", "above_both", "below_k_sc", "below_k_al", "relaxed")
CONSISTENCIES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


def filtered_shares(
    consistency: Float[np.ndarray, "n c"], level: Float[np.ndarray, "n c"], k_sc: float, k_al: float
) -> dict[str, float]:
    """Shares of the pairs, and of the rows (an image's candidates of one round) whose filters had to relax.

    `below_*`, `above_both`: pairs below, or not below, the thresholds as they stand. `removed_sc`, `removed_al`,
    `surviving`: what Alg. 1 takes and leaves, each filter relaxed to the best pair that is there; they add up to 1.
    `relaxed_sc`: rows without any pair of k_sc. `relaxed_al`: rows none of whose consistent pairs has k_al.
    `relaxed`: either.
    """
    inconsistent, shallow = consistency < k_sc, level < k_al
    consistent = consistency >= np.minimum(k_sc, consistency.max(axis=1, keepdims=True))
    survivors = vs2fi_survivors(consistency, level, k_sc, k_al)
    relaxed_sc = inconsistent.all(axis=1)
    relaxed_al = (shallow | ~consistent).all(axis=1)
    shares = {
        "below_k_sc": inconsistent,
        "below_k_al": shallow,
        "below_both": inconsistent & shallow,
        "above_both": ~(inconsistent | shallow),
        "removed_sc": ~consistent,
        "removed_al": consistent & ~survivors,
        "surviving": survivors,
        "relaxed_sc": relaxed_sc,
        "relaxed_al": relaxed_al,
        "relaxed": relaxed_sc | relaxed_al,
    }
    return {name: float(flags.mean()) for name, flags in shares.items()}


def filtered_by_round(
    consistency: Float[np.ndarray, "n r c"], level: Float[np.ndarray, "n r c"], k_sc: float, k_al: float
) -> dict[str, Any]:
    """`filtered_shares` over all rounds, and of each."""
    rounds = [filtered_shares(consistency[:, r], level[:, r], k_sc, k_al) for r in range(consistency.shape[1])]
    pairs = consistency.shape[2]
    return {
        "all": filtered_shares(consistency.reshape(-1, pairs), level.reshape(-1, pairs), k_sc, k_al),
        "rounds": rounds,
    }


def sensitivity(
    consistency: Float[np.ndarray, "n c"],
    level: Float[np.ndarray, "n c"],
    levels_by_gamma: Sequence[tuple[float, Float[np.ndarray, "n c"]]],
    *,
    num_exits: int,
    k_sc: float,
    k_al: float,
) -> dict[str, list[dict[str, float]]]:
    """The share of pairs that survive when one threshold is changed and the others stay (the question of figure 8).

    levels_by_gamma: Alignment Levels read off the stored similarities with other values of gamma.
    """

    def at(value: float, levels: np.ndarray, sc: float, al: float) -> dict[str, float]:
        shares = filtered_shares(consistency, levels, sc, al)
        return {"value": value, **{name: shares[name] for name in SHOWN}}

    return {
        "k_sc": [at(value, level, value, k_al) for value in sorted({*CONSISTENCIES, k_sc})],
        "k_al": [at(value, level, k_sc, value) for value in sorted({*map(float, range(1, num_exits + 2)), k_al})],
        "gamma": [at(gamma, levels, k_sc, k_al) for gamma, levels in levels_by_gamma],
    }
