"""Where first weights come from: torch's generator, put aside and put back, so that a seed alone decides them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Inside, modules made on the CPU draw their weights from `seed`; the caller's random state is left untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
