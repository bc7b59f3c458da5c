"""What a foreground fit looks at: whole images, as `generate` does, or stored views, as `quality` does.

Both are passed over twice: first for the tokens that the component is fitted on, then for squares, whole images whose
scores decide sign and threshold. Encoding twice costs less than keeping the tokens: 13 GB for 10,000 images of ViT-H.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.stored_views import (
    IMAGES,
    RowViews,
    centre_square,
    encode_rows,
    encode_views,
    genview_of,
    read_views,
    render_rows,
    stored_recipes,
)
from viewkit.pipelines.engine.batches import batches, padded
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.rejects import decode_or_reject
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.engine.threads import side_by_side
from viewkit.pipelines.foreground.artifact import Statistics
from viewkit.pipelines.foreground.index import Embeddings
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.row import Reject

MAX_NON_FINITE = 0.01
"""Share of the images that may be left out (one always may); more are a sign of a broken encoder or precision."""
ROWS_AT_ONCE = 16


class Squares(NamedTuple):
    """Whole images as the encoder takes them, and their tokens."""

    views: Float[Tensor, "n 3 s s"]
    tokens: Float[Tensor, "n t k"]


class Encoded(NamedTuple):
    """A full batch. rows: positions of the images that could be decoded, whose views come first."""

    rows: list[int]
    views: Float[Tensor, "b 3 s s"]
    tokens: Float[Tensor, "b t k"]
    features: Float[Tensor, "b d"]


class FitSample(ABC):
    """keys: of the images fitted on. statistics: of the embeddings, once `tokens` is through.

    Images that cannot be decoded, or whose tokens are not finite, are left out and counted.
    """

    rows: ClassVar[str]
    """What the sample is taken from, for messages."""
    remedy: ClassVar[str]
    statistics: Statistics | None = None

    def __init__(self, keys: list[str], encoder: Encoder, run: Run) -> None:
        self.keys, self.encoder, self.run = keys, encoder, run
        self.undecodable = self.non_finite = 0

    @property
    @abstractmethod
    def steps(self) -> int:
        """Images of both passes, for the progress display."""

    @abstractmethod
    def tokens(self) -> Iterator[Float[Tensor, "t k"]]:
        """First pass: the tokens of each image of the sample."""

    @abstractmethod
    def squares(self) -> Iterator[Squares]:
        """Second pass, over the images that gave tokens."""

    def check_finite(self, images: int) -> None:
        """`DataError` when too many of the images gave tokens that are not finite."""
        if self.non_finite > max(1, MAX_NON_FINITE * images):
            raise DataError(
                f"foreground: the encoder's outputs for {self.non_finite} of {images} images are not finite; use "
                "--precision fp32"
            )


class WholeImages(FitSample):
    """Images as the encoder's own preprocessing shows them, in batches of `batch_size`, always filled up.

    index: file for the embeddings of every image of the dataset; None to embed those of the sample alone.
    """

    rows = "images"
    remedy = "pack more"

    def __init__(self, size: int, encoder: Encoder, run: Run, *, batch_size: int, index: Path | None) -> None:
        self.images = run.dataset.column(IMAGES)
        super().__init__(smallest(self.images.keys(), size), encoder, run)
        self.batch_size, self.index = batch_size, index
        self.places = sorted(self.images.place_of[key] for key in self.keys)
        self.every: Sequence[int] = self.places if index is None else range(self.images.num_rows)

    @property
    def steps(self) -> int:
        return len(self.every) + len(self.places)

    def tokens(self) -> Iterator[Float[Tensor, "t k"]]:
        embeddings = Embeddings(len(self.every), self.encoder.width, self.index)
        sample = set(self.places)
        for rows, _, tokens, features in self._encoded(self.every):
            finite = _finite(tokens) & _finite(features)
            for i, row in enumerate(rows):
                if not finite[i]:
                    self.non_finite += 1
                    continue
                embeddings.put(row, features[i])
                if self.every[row] in sample:
                    yield tokens[i]
        self.undecodable = int((~embeddings.present).sum()) - self.non_finite
        self.check_finite(len(self.every))
        if embeddings.present.any():
            self.statistics = Statistics(*embeddings.statistics())
            if self.index is not None:
                embeddings.to_index(*self.statistics)

    def squares(self) -> Iterator[Squares]:
        for rows, views, tokens, features in self._encoded(self.places):
            kept = (_finite(tokens) & _finite(features))[: len(rows)].nonzero().squeeze(1)
            yield Squares(views[kept], tokens[kept])

    def _encoded(self, places: Sequence[int]) -> Iterator[Encoded]:
        """Full batches that begin with the images that can be decoded, encoded side by side."""

        def encode(part: Sequence[int]) -> tuple[int, Encoded | None]:
            decoded = {}
            for row in part:
                place = places[row]
                pixels = decode_or_reject(self.images.keys()[place], self.images.fields(place))
                if not isinstance(pixels, Reject):  # `generate` rejects such a row and says why
                    decoded[row] = pixels
            if not decoded:
                return len(part), None
            views = self.encoder.prepare_images(padded(list(decoded.values()), self.batch_size))
            return len(part), Encoded(list(decoded), views, *self.encoder.tokens_and_features(views))

        for seen, found in side_by_side(encode, batches(range(len(places)), self.batch_size), self.run.device):
            if found is not None:
                yield found
            self.run.progress.advance(seen)


class StoredViews(FitSample):
    """The views of round 0 of the stored pairs, rendered as `quality` renders them.

    Squares are the centre squares of the same images: things lie near the centre of a photograph, but anywhere in a
    random crop of it.
    """

    rows = "rows with pairs"
    remedy = "score more images"

    def __init__(self, size: int, encoder: Encoder, run: Run, pairs: str = PAIRS) -> None:
        self.pairs, self.images = run.dataset.column(pairs), run.dataset.column(IMAGES)
        genview = genview_of(run.dataset, pairs)
        self.genview = None if genview is None else run.dataset.column(genview)
        super().__init__(smallest(self.pairs.keys(), size), encoder, run)
        self.usable: list[str] = []

    @property
    def steps(self) -> int:
        return 2 * len(self.keys)

    def tokens(self) -> Iterator[Float[Tensor, "t k"]]:

        def encode(rows: list[RowViews]) -> tuple[list[RowViews], Tensor]:
            return rows, torch.cat(list(encode_rows(self.encoder, rows)))

        for rows, maps in side_by_side(encode, self._rows(self.keys), self.run.device):
            for row, own in zip(rows, maps.split([row.index.size for row in rows]), strict=True):
                if bool(own.isfinite().all()):
                    self.usable.append(row.key)
                    yield own.flatten(0, 2)
                else:
                    self.non_finite += 1
        self.undecodable = len(self.keys) - len(self.usable) - self.non_finite
        self.check_finite(len(self.keys))

    def squares(self) -> Iterator[Squares]:
        def encode(rows: list[RowViews]) -> list[Squares]:
            parts = render_rows(self.encoder, [centre_square(row, self.encoder.side_px) for row in rows])
            return [Squares(views, encode_views(self.encoder, views).flatten(1, 2)) for views in parts]

        for squares in side_by_side(encode, self._rows(self.usable), self.run.device):
            yield from squares

    def _rows(self, keys: Sequence[str]) -> Iterator[list[RowViews]]:
        """Rows that can be decoded, with the views of round 0, in lists that are never empty."""
        for part in batches(keys, ROWS_AT_ONCE):
            read = [self._read(key) for key in part]
            if rows := [row for row in read if isinstance(row, RowViews)]:
                yield rows
            self.run.progress.advance(len(part))

    def _read(self, key: str) -> RowViews | Reject:
        recipes = stored_recipes(key, self.pairs.fields(self.pairs.place_of[key]))[:1]
        place = None if self.genview is None else self.genview.place_of.get(key)
        generated = None if self.genview is None or place is None else self.genview.fields(place)
        image = self.images.fields(self.images.place_of[key])
        return read_views(key, recipes, image, generated, self.run.device)


def passes_over_images(dataset: Dataset, size: int, index: bool) -> tuple[int, int]:
    """Images of the sample, and forward passes of one image that a fit of `WholeImages` takes."""
    images = dataset.column(IMAGES).num_rows
    sample = min(images, size)
    return sample, (images if index else sample) + sample


def passes_over_views(dataset: Dataset, size: int, pairs: str = PAIRS) -> tuple[int, int]:
    """The same of a fit of `StoredViews`, judged by the first row's views."""
    column = dataset.column(pairs)
    sample = min(column.num_rows, size)
    views = stored_recipes(column.row(0).key, column.fields(0)).shape[1] + 1 if sample else 0
    return sample, sample * views


def _finite(outputs: Shaped[Tensor, "n ..."]) -> Bool[Tensor, " n"]:
    """Whether all that the encoder gave for each image is finite."""
    return outputs.isfinite().flatten(1).all(dim=1)
