"""Random numbers that depend on (seed, stage, key) alone: never on order, worker, restart or a global state.

A row's key is hashed once to 128 bits (`row_ids`); they key a Philox4x64-10 stream (Salmon et al. 2011). `stream`
gives numpy's generator for one key. `viewkit.pipelines.views.sample` draws for many rows at once from the same
construction.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import UInt64

from viewkit.shards.errors import ConfigError


def row_ids(keys: Sequence[str]) -> UInt64[np.ndarray, "n 2"]:
    """128 bits of BLAKE2b for every key, as two 64-bit words in little-endian order."""
    digests = b"".join(hashlib.blake2b(key.encode(), digest_size=16).digest() for key in keys)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64).reshape(len(keys), 2)


def domain(seed: int, stage: str) -> int:
    """64 bits that keep the streams of one stage and seed apart from those of any other."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed is {seed}; it must lie in 0 ... 2^63 - 1")
    return int.from_bytes(hashlib.blake2b(f"{stage}\0{seed}".encode(), digest_size=8).digest(), "little")


def stream(seed: int, stage: str, *names: object) -> np.random.Generator:
    """A numpy generator for one (seed, stage, names), e.g. ``stream(0, "generate", key, attempt)``.

    Philox with the hash of the names as its 128-bit key and `domain` in the counter's highest word.
    """
    ids = row_ids(["\0".join(str(name) for name in names)])[0]
    counter = np.array([0, 0, 0, domain(seed, stage)], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=ids, counter=counter))


def smallest(keys: Iterable[str], count: int) -> list[str]:
    """The `count` keys with the smallest hashes, in that order: a fixed sample whatever the sharding or listing."""
    return sorted(keys, key=lambda key: (hashlib.blake2b(key.encode(), digest_size=16).digest(), key))[:count]
