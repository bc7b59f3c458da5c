"""Which images make up which mosaic: a function of the seed and the mosaic's number alone."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from jaxtyping import Int64

from viewkit.pipelines.engine.seeds import stream
from viewkit.shards.errors import DataError

NO_CLASS = -1


class Composition:
    """Draws the parts of every mosaic: different images of different classes, or of one class, or without classes any.

    labels: class of each of the source's n images, `NO_CLASS` where it has none. Where no image has one, parts are any
    images; otherwise images without a class take no part. num_parts: of every mosaic. same_class: share, in [0, 1], of
    the mosaics whose parts are all of one class; of the first m mosaics exactly floor(m same_class) are.
    A class counts once however many images it has: classes are drawn first, uniformly, then an image of each.
    Raises `DataError` for images or classes that do not suffice.
    """

    def __init__(self, labels: Int64[np.ndarray, " n"], *, num_parts: int, same_class: float, seed: int) -> None:
        self._num_parts, self._seed = num_parts, seed
        self._share = Fraction(str(same_class))  # of the decimal number as written: .29 of 100 are 29
        self.is_labelled = bool((labels != NO_CLASS).any())
        self.left_out = int((labels == NO_CLASS).sum()) if self.is_labelled else 0
        self._members = np.argsort(labels, kind="stable")[self.left_out :]  # grouped by class
        _, self._first, self._count = np.unique(labels[self._members], return_index=True, return_counts=True)
        if len(self._members) < num_parts:
            raise DataError(
                f"pack: a mosaic of {num_parts} parts needs as many different images; the source has "
                f"{len(self._members)}{' with a class' if self.is_labelled else ''}"
            )
        if self._share and not self.is_labelled:
            raise DataError(
                f"pack: same_class is {same_class:g} and the source has no labels; use --labels folders for a folder "
                "with a folder a class, tars that hold KEY.cls, or leave the option out"
            )
        self._large = np.flatnonzero(self._count >= num_parts)
        if self._share and not len(self._large):
            raise DataError(
                f"pack: same_class is {same_class:g} and no class has {num_parts} images; the largest has "
                f"{self._count.max()}; use a smaller --grid or more images"
            )
        if self.is_labelled and self._share < 1 and len(self._count) < num_parts:
            raise DataError(
                f"pack: a mosaic of {num_parts} parts of different classes needs as many classes; the source has "
                f"{len(self._count)}; use a smaller --grid, --same-class 1, or a source without labels"
            )

    def is_of_one_class(self, number: int) -> bool:
        return (number + 1) * self._share // 1 > number * self._share // 1

    def parts(self, number: int) -> Sequence[int]:
        """Indices of the mosaic's images in the source, all different, from the top left, row by row."""
        random = stream(self._seed, "mosaic", number)
        if not self.is_labelled:
            found = random.choice(len(self._members), self._num_parts, replace=False)
        elif self.is_of_one_class(number):
            chosen = self._large[random.integers(len(self._large))]
            found = self._first[chosen] + random.choice(self._count[chosen], self._num_parts, replace=False)
        else:
            classes = random.choice(len(self._count), self._num_parts, replace=False)
            found = self._first[classes] + random.integers(self._count[classes])
        return [int(each) for each in self._members[found]]
