"""What a foreground fit looks at: whole images, as `generate` does, or stored views, as `quality` does.

Both are passed over twice (`passes`), in parts that depend on the images and the options alone. Here they are cut, and
what was found in them is added up.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from viewkit.pipelines.encoders.stored_views import IMAGES, stored_recipes
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.foreground.artifact import Statistics
from viewkit.pipelines.foreground.covariance import Moments
from viewkit.pipelines.foreground.index import Embeddings
from viewkit.pipelines.foreground.passes import (
    ROWS_AT_ONCE,
    EncoderFacts,
    SquaresFound,
    SquaresPart,
    TokensFound,
    TokensPart,
)
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError

MAX_NON_FINITE = 0.01
"""Share of the images that may be left out (one always may); more are a sign of a broken encoder or precision."""
MIN_IMAGES = 10
SHOWN = 16
"""Images on the contact sheet of masks."""
IMAGES_PER_PART = 512
"""Or the next multiple of a batch. A constant, so that parts do not depend on who does them; large beside the moments
that a part sends back, 26 MB for ViT-H/14, and small enough for an ordinary sample to keep twenty GPUs at work."""


class FitSample(ABC):
    """keys: of the images fitted on. passed: the images of the first pass. at_once: that are encoded together.

    Of both passes: the parts, all of it as one part for a process on its own.
    """

    rows: ClassVar[str]
    """What the sample is taken from, for messages."""
    remedy: ClassVar[str]
    index: Path | None = None

    def __init__(self, dataset: Dataset, keys: list[str], passed: Sequence[Any], at_once: int) -> None:
        self.dataset, self.keys, self.passed = dataset, keys, passed
        self.part_rows = -(-IMAGES_PER_PART // at_once) * at_once

    @property
    @abstractmethod
    def fitted(self) -> Bool[np.ndarray, " m"]:
        """Which of the images of the first pass the component is fitted on."""

    @abstractmethod
    def in_squares(self, present: Bool[np.ndarray, " m"]) -> tuple[Sequence[Any], Bool[np.ndarray, " n"]]:
        """The images of the second pass, and which of them give squares. present: those that gave tokens."""

    @property
    def steps(self) -> int:
        """Images of both passes, for the progress display."""
        return len(self.passed) + len(self.keys)

    def tokens_parts(self, *, is_alone: bool) -> list[TokensPart]:
        fitted, index = self.fitted, self.index if is_alone else None
        return [
            TokensPart(rows, self.passed[rows.start : rows.stop], fitted[rows.start : rows.stop], index)
            for rows in cut(len(self.passed), None if is_alone else self.part_rows)
        ]

    def squares_parts(
        self, found: "Tokens", direction: Float64[np.ndarray, " k"], *, is_alone: bool
    ) -> list[SquaresPart]:
        items, gives = self.in_squares(found.present)
        return [
            SquaresPart(items[rows.start : rows.stop], direction, max(0, SHOWN - int(gives[: rows.start].sum())))
            for rows in cut(len(items), None if is_alone else self.part_rows)
        ]


class ImageSample(FitSample):
    """Whole images, in batches of `batch_size`.

    index: file for the embeddings of every image of the dataset; None to embed those of the sample alone.
    """

    rows = "images"
    remedy = "pack more"

    def __init__(self, dataset: Dataset, size: int, *, batch_size: int, index: Path | None) -> None:
        images = dataset.column(IMAGES)
        keys, self.index = smallest(images.keys(), size), index
        self.places = sorted(images.place_of[key] for key in keys)
        super().__init__(dataset, keys, self.places if index is None else range(images.num_rows), batch_size)

    @property
    def fitted(self) -> Bool[np.ndarray, " m"]:
        found = np.ones(len(self.passed), bool)
        if self.index is not None:
            found[:] = False
            found[self.places] = True
        return found

    def in_squares(self, present: Bool[np.ndarray, " m"]) -> tuple[Sequence[int], Bool[np.ndarray, " n"]]:
        """All images of the sample once more, in the same batches."""
        return self.places, present[self.fitted]


class ViewSample(FitSample):
    """Rows of the column of pairs, whose views of round 0 are meant."""

    rows = "rows with pairs"
    remedy = "score more images"

    def __init__(self, dataset: Dataset, size: int, pairs: str = PAIRS) -> None:
        keys = smallest(dataset.column(pairs).keys(), size)
        super().__init__(dataset, keys, keys, ROWS_AT_ONCE)

    @property
    def fitted(self) -> Bool[np.ndarray, " m"]:
        return np.ones(len(self.keys), bool)

    def in_squares(self, present: Bool[np.ndarray, " m"]) -> tuple[Sequence[str], Bool[np.ndarray, " n"]]:
        usable = [key for key, gave in zip(self.keys, present, strict=True) if gave]
        return usable, np.ones(len(usable), bool)


def cut(count: int, size: int | None) -> list[range]:
    """Every number below `count` in runs of `size`, or in one."""
    size = size or max(count, 1)
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


class Tokens:
    """What the first pass found in all parts. Every sum is exact, so the order of the parts is of no account.

    present: which images gave tokens. embeddings: of whole images.
    """

    def __init__(self, sample: FitSample) -> None:
        self.sample = sample
        self.present = np.zeros(len(sample.passed), bool)
        self.non_finite = 0
        self.moments: Moments | None = None
        self.embeddings: Embeddings | None = None
        self.encoder: EncoderFacts | None = None

    def add(self, part: TokensFound) -> None:
        """Take in a part. `DataError` where it was encoded with another encoder than those before."""
        if self.encoder is not None and part.encoder != self.encoder:
            raise DataError(
                "foreground: the workers opened different encoders; give every node the same files of weights and the "
                "same versions of packages"
            )
        self.encoder = part.encoder
        self.present[part.rows] = part.present
        self.non_finite += part.non_finite
        if part.moments is not None:
            self.moments = self.moments or Moments(part.moments.width)
            self.moments.merge(part.moments)
        if part.embeddings is not None:
            self._place(part.rows, part.embeddings)

    def _place(self, rows: range, part: Embeddings) -> None:
        if len(rows) == len(self.present) and part.path == self.sample.index:
            self.embeddings = part  # of all, and in their file already
            return
        if self.embeddings is None:
            self.embeddings = Embeddings(len(self.present), part.values.shape[1], self.sample.index)
        self.embeddings.put_rows(rows, part)

    @property
    def undecodable(self) -> int:
        return int((~self.present).sum()) - self.non_finite

    def check(self) -> tuple[Moments, EncoderFacts]:
        """What a component is fitted with. `DataError` when too many outputs are not finite, or too few images can be
        used."""
        looked = len(self.present)
        if self.non_finite > max(1, MAX_NON_FINITE * looked):
            raise DataError(
                f"foreground: the encoder's outputs for {self.non_finite} of {looked} images are not finite; use "
                "--precision fp32"
            )
        if self.moments is None or self.encoder is None or self.moments.images < MIN_IMAGES:
            found = 0 if self.moments is None else self.moments.images
            raise DataError(
                f"foreground: {self.sample.dataset.path} has {found} {self.sample.rows} that can be decoded, and a "
                f"component takes {MIN_IMAGES} or more; {self.sample.remedy}"
            )
        return self.moments, self.encoder

    def statistics(self) -> Statistics | None:
        """Of the embeddings of whole images, which are then made the index, where one is asked for."""
        if self.embeddings is None or not self.embeddings.present.any():
            return None
        found = Statistics(*self.embeddings.statistics())
        if self.sample.index is not None:
            self.embeddings.to_index(*found)
        return found


def add_squares(
    found: Iterable[tuple[int, SquaresFound]],
) -> tuple[Float64[np.ndarray, "n t"], Bool[np.ndarray, "n t"], Float[Tensor, "m 3 s s"]]:
    """Scores, flat patches and the first squares, in the order of the parts. found: with their places, in any order."""
    parts = [part for _, part in sorted(found, key=lambda each: each[0])]
    shown = np.concatenate([part.shown for part in parts])[:SHOWN]
    scores, flat = (np.concatenate([getattr(part, name) for part in parts]) for name in ("scores", "flat"))
    return scores, flat, torch.from_numpy(shown)


def passes_over_images(dataset: Dataset, size: int, index: bool) -> tuple[int, int]:
    """Images of the sample, and forward passes of one image that a fit of `ImageSample` takes."""
    images = dataset.column(IMAGES).num_rows
    sample = min(images, size)
    return sample, (images if index else sample) + sample


def passes_over_views(dataset: Dataset, size: int, pairs: str = PAIRS) -> tuple[int, int]:
    """The same of a fit of `ViewSample`, judged by the first row's views."""
    column = dataset.column(pairs)
    sample = min(column.num_rows, size)
    views = stored_recipes(column.row(0).key, column.fields(0), column).shape[1] + 1 if sample else 0
    return sample, sample * views
