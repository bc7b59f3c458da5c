"""Initial weights depend on a seed alone: torch's global generator is saved, seeded and restored."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Inside, modules made on the CPU sample their weights from `seed`; the caller's random state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
