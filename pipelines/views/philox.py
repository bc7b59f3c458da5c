"""Philox4x64-10 for many keys at once (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

The numbers are those of `numpy.random.Philox(key=..., counter=...)`, bit for bit; only the loop over rows is gone.
"""

import numpy as np
from jaxtyping import Float64, UInt64

MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
WEYL = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B))
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
CHUNK = 8192
"""Counters worked on at once: their two dozen temporaries stay in a core's cache."""


def _multiply(a: np.uint64, b: UInt64[np.ndarray, " m"]) -> tuple[UInt64[np.ndarray, " m"], UInt64[np.ndarray, " m"]]:
    """High and low 64 bits of the 128-bit product, from four products of 32-bit halves."""
    a_low, a_high = a & LOW, a >> HALF
    b_low, b_high = b & LOW, b >> HALF
    cross = a_high * b_low + ((a_low * b_low) >> HALF)
    other = a_low * b_high + (cross & LOW)
    return a_high * b_high + (cross >> HALF) + (other >> HALF), a * b


def _blocks(counters: UInt64[np.ndarray, "m 4"], keys: UInt64[np.ndarray, "m 2"]) -> UInt64[np.ndarray, "m 4"]:
    c0, c1, c2, c3 = (np.ascontiguousarray(counters[:, word]) for word in range(4))
    k0, k1 = (np.ascontiguousarray(keys[:, word]) for word in range(2))
    for turn in range(ROUNDS):
        if turn:
            k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
        high_0, low_0 = _multiply(MULTIPLIERS[0], c0)
        high_1, low_1 = _multiply(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
    return np.stack([c0, c1, c2, c3], axis=1)


def philox(counters: UInt64[np.ndarray, "m 4"], keys: UInt64[np.ndarray, "m 2"]) -> UInt64[np.ndarray, "m 4"]:
    """Four random words for every (counter, key). numpy adds one to a counter before it uses it; this does not."""
    words = np.empty(counters.shape, dtype=np.uint64)
    for start in range(0, len(counters), CHUNK):
        part = slice(start, start + CHUNK)
        words[part] = _blocks(counters[part], keys[part])
    return words


def uniforms(words: UInt64[np.ndarray, "*any"]) -> Float64[np.ndarray, "*any"]:
    """Numbers in [0, 1) from the upper 53 bits of every word, as numpy's generators make them."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
