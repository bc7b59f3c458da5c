"""Which combinations of crops are compared when the hardest is sought: two large views and a subset of small ones."""

from itertools import product
from math import comb

import numpy as np
from jaxtyping import Int

Combination = tuple[int, int, tuple[int, ...]]
"""A large view of the first specification (even index), one of the second (odd), and small views, ascending."""


def count_combinations(num_large: int, num_small: int, num_chosen: int) -> int:
    """(G / 2)^2 C(L, l), e.g. 32,032 for 4 large views and 10 of 16 small ones."""
    return (num_large // 2) ** 2 * comb(num_small, num_chosen)


def combination_at(rank: int, num_large: int, num_small: int, num_chosen: int) -> Combination:
    """The combination of a rank in 0 ... count - 1, lexicographic."""
    subsets = comb(num_small, num_chosen)
    pair, rank = divmod(rank, subsets)
    first, second = list(product(range(0, num_large, 2), range(1, num_large, 2)))[pair]
    chosen: list[int] = []
    view = 0
    while len(chosen) < num_chosen:
        with_view = comb(num_small - view - 1, num_chosen - len(chosen) - 1)
        if rank < with_view:
            chosen.append(num_large + view)
        else:
            rank -= with_view
        view += 1
    return first, second, tuple(chosen)


def sample_ranks(generator: np.random.Generator, total: int, limit: int) -> Int[np.ndarray, " k"]:
    """`limit` different numbers below `total`, ascending, every set of them equally likely; all where there are fewer.

    total: below 2^63.
    """
    if limit >= total:
        return np.arange(total)
    if total <= 4 * limit:
        return np.sort(generator.permutation(total)[:limit])
    found: dict[int, None] = {}
    while len(found) < limit:
        found.setdefault(int(generator.integers(total)))
    return np.sort(np.fromiter(found, dtype=np.int64))
