"""The global order of an epoch: every row once, known beforehand, and any stretch of it without the rest.

Up to `LISTED` rows the order is a permutation held as an array. Above, it is a keyed bijection on 0 ... n - 1 that is
computed place by place: a Feistel network on the smallest even number of bits that holds n, repeated for a number until
it falls below n (cycle walking; Black and Rogaway 2002, "Ciphers with arbitrary finite domains", section 5).
"""

import numpy as np
from jaxtyping import Int64, UInt64

LISTED = 1 << 20
"""Rows whose permutation takes 8 MB and 20 ms."""
ROUNDS = 10


def order_of(num_rows: int, seed: int, epoch: int) -> "Listed | Feistel":
    """By numpy's Philox keyed with (seed, epoch)."""
    random = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))
    if num_rows <= LISTED:
        return Listed(np.random.Generator(random).permutation(num_rows))
    return Feistel(num_rows, random.random_raw(ROUNDS))


class Listed:
    def __init__(self, permutation: Int64[np.ndarray, " n"]) -> None:
        self._permutation = permutation

    def rows(self, start: int, stop: int) -> Int64[np.ndarray, " k"]:
        """Rows at the places start ... stop - 1 of the epoch."""
        return self._permutation[start:stop]


class Feistel:
    """keys: of the rounds."""

    def __init__(self, num_rows: int, keys: UInt64[np.ndarray, " r"]) -> None:
        self._num_rows, self._keys = num_rows, keys
        self._bits = np.uint64(max(1, -(-(num_rows - 1).bit_length() // 2)))
        self._mask = np.uint64((1 << int(self._bits)) - 1)

    def rows(self, start: int, stop: int) -> Int64[np.ndarray, " k"]:
        """Rows at the places start ... stop - 1 of the epoch."""
        values = self._once(np.arange(start, min(stop, self._num_rows), dtype=np.uint64))
        while (outside := values >= np.uint64(self._num_rows)).any():
            values[outside] = self._once(values[outside])
        return values.astype(np.int64)

    def _once(self, values: UInt64[np.ndarray, " k"]) -> UInt64[np.ndarray, " k"]:
        left, right = values >> self._bits, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (mixed(right ^ key) & self._mask)
        return (left << self._bits) | right


def mixed(values: UInt64[np.ndarray, " k"]) -> UInt64[np.ndarray, " k"]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit of the input changes half of the output's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
