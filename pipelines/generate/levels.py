"""Noise level of an image: adaptive to its foreground, constant, or random (GenView, eq. 4 and table 9)."""

import numpy as np

STEP = 100
LARGEST = 400
LEVELS = tuple(range(0, LARGEST + 1, STEP))


def adaptive_level(count: int, total: int) -> int:
    """Level of an image with `count` foreground tokens among `total`: 100 * min(4, floor(5 count / total)).

    In integers, since floor(0.6 / 0.2) is 2 in floating point. The cap is the paper's text; its formula alone gives 500
    for an image that is foreground all over.
    """
    return STEP * min(LARGEST // STEP, 5 * count // total)


def sample_level(generator: np.random.Generator) -> int:
    """One of 0, 100 ... 400, alike."""
    return LEVELS[int(generator.integers(len(LEVELS)))]
