"""Pairs from the stored candidates that both of VS-2FI's indicators accept (Alg. 1)."""

import numpy as np
from jaxtyping import Float32, Float64, Int64

from viewkit.pipelines.pairs.column import CONSISTENCY, LEVEL, num_exits_of
from viewkit.pipelines.pairs.generated import DrawnFrom
from viewkit.pipelines.pairs.random import RandomPairs
from viewkit.pipelines.pairs.select import select_vs2fi
from viewkit.pipelines.pairs.stored import StoredPairs

SHARE_OF_BLOCKS = 7 / 12
"""The paper's k_AL = 7 for an estimator of 12 blocks, as a share, for estimators with fewer."""


class Vs2fiPairs(StoredPairs):
    """One of the stored pairs that pass both filters.

    k_sc: least Semantic Consistency. k_al: least Alignment Level; None: `SHARE_OF_BLOCKS` of the estimator's blocks.
    """

    counted = ("relaxed_pairs",)

    def __init__(
        self,
        fallback: RandomPairs,
        *,
        k_sc: float,
        k_al: float | None,
        quality: bool = False,
        candidates: DrawnFrom = "original",
    ) -> None:
        super().__init__(fallback, quality=quality, candidates=candidates)
        self.k_sc, self.k_al = k_sc, k_al

    def count(self, scores: Float32[np.ndarray, "n c s"]) -> dict[str, int]:
        """Rows without any pair of k_sc: what is kept there is the most consistent pair, whatever it is."""
        return {"relaxed_pairs": int((scores[:, :, CONSISTENCY].max(axis=1) < self.k_sc).sum())}

    def select(self, scores: Float32[np.ndarray, "n c s"], u: Float64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        k_al = SHARE_OF_BLOCKS * num_exits_of(scores) if self.k_al is None else self.k_al
        return select_vs2fi(scores[:, :, CONSISTENCY], scores[:, :, LEVEL], self.k_sc, k_al, u)
