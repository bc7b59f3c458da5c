"""Two trained models on the same test images: McNemar's exact test, and how often they disagree.

It compares two models, not two methods: another seed gives other models. So it stands beside the paired seeds and
decides nothing.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from scipy import stats


@dataclass(frozen=True)
class Mcnemar:
    """gained: images that the arm alone got right; lost: those that the reference alone did. p: exact, two-sided."""

    gained: int
    lost: int
    p: float
    images: int

    @property
    def disagreement(self) -> float:
        """Share of images that one of the two alone got right."""
        return (self.gained + self.lost) / self.images

    @property
    def error(self) -> float:
        """Standard error of the difference of the two accuracies over images, as a share: sqrt(disagreement / n)."""
        return float(np.sqrt(self.disagreement / self.images))


def mcnemar(arm: Bool[np.ndarray, " n"], reference: Bool[np.ndarray, " n"]) -> Mcnemar:
    """arm, reference: which of the same images each got right (McNemar 1947, by the binomial distribution)."""
    gained, lost = int((arm & ~reference).sum()), int((reference & ~arm).sum())
    p = float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return Mcnemar(gained, lost, p, len(arm))
