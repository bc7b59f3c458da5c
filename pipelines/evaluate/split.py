"""Parts of the training images, the same share of every class, decided by the hashes of the keys alone.

So a part depends neither on a seed nor on the order or sharding of the rows, and never on test images.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from viewkit.pipelines.seeds import smallest


def hold_out(keys: Sequence[str], labels: Int[np.ndarray, " n"], share: float) -> Bool[np.ndarray, " n"]:
    """A mask of rows that choose a setting: `share` of every class, rounded, of a class of two or more at least one
    and never all."""
    return _part(keys, labels, share, leave=1)


def labelled_part(keys: Sequence[str], labels: Int[np.ndarray, " n"], share: float) -> Bool[np.ndarray, " n"]:
    """A mask of the rows whose labels a semi-supervised probe may see: `share` of every class, at least one row."""
    return _part(keys, labels, share, leave=0)


def _part(keys: Sequence[str], labels: Int[np.ndarray, " n"], share: float, leave: int) -> Bool[np.ndarray, " n"]:
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        place = {keys[row]: row for row in map(int, np.flatnonzero(labels == label))}
        wanted = min(max(1, round(share * len(place))), len(place) - leave)
        chosen[[place[key] for key in smallest(place, wanted)]] = True
    return chosen
