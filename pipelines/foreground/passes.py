"""The two passes of a foreground fit over a part of its images: what a worker does, and what it gives back.

First the tokens that the component is fitted on, then squares, whole images whose scores decide sign and threshold.
Encoding twice costs less than keeping the tokens: 13 GB for 10,000 images of ViT-H.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Shaped
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
from viewkit.pipelines.engine.threads import side_by_side
from viewkit.pipelines.engine.workers import Report
from viewkit.pipelines.foreground.artifact import project
from viewkit.pipelines.foreground.covariance import Moments
from viewkit.pipelines.foreground.index import Embeddings
from viewkit.pipelines.foreground.sign import flat_patches
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.shards.row import Reject
from viewkit.shards.spans import spanned

ROWS_AT_ONCE = 16


@dataclass(frozen=True)
class TokensPart:
    """Part of the first pass. rows: their positions in it. items: the images, by place, or by key where stored views
    are meant. fitted: which of them the component is fitted on. index: file for the embeddings, of all in one part."""

    rows: range
    items: Sequence[Any]
    fitted: Bool[np.ndarray, " m"]
    index: Path | None = None


@dataclass(frozen=True)
class SquaresPart:
    """Part of the second pass. shown: how many squares are to be sent back as pictures."""

    items: Sequence[Any]
    direction: Float64[np.ndarray, " k"]
    shown: int


class EncoderFacts(NamedTuple):
    """What is kept of the encoder that was opened, see `Encoder`."""

    fingerprint: Mapping[str, Any]
    grid: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class TokensFound:
    """present: which rows gave tokens; of the others `non_finite` were decoded. moments: None where no row of the
    sample did. embeddings: of whole images, in the order of the rows."""

    rows: range
    present: Bool[np.ndarray, " m"]
    non_finite: int
    moments: Moments | None
    embeddings: Embeddings | None
    encoder: EncoderFacts


@dataclass(frozen=True)
class SquaresFound:
    """scores: projections of the squares' tokens. flat: patches of one colour. shown: the first squares."""

    scores: Float64[np.ndarray, "n t"]
    flat: Bool[np.ndarray, "n t"]
    shown: Float32[np.ndarray, "_m 3 s s"]


class Squares(NamedTuple):
    """Whole images as the encoder takes them, and their tokens."""

    views: Float[Tensor, "n 3 s s"]
    tokens: Float[Tensor, "n t k"]


class Passes(ABC):
    """Both passes with an encoder, over any part."""

    def __init__(self, encoder: Encoder, run: Run) -> None:
        self.encoder, self.run = encoder, run
        self.facts = EncoderFacts(encoder.fingerprint(), encoder.grid, encoder.mean, encoder.std)

    @abstractmethod
    def tokens(self, part: TokensPart, report: Report) -> TokensFound:
        """First pass. Images that cannot be decoded, or whose tokens are not finite, are left out and counted."""

    @abstractmethod
    def squares_of(self, items: Sequence[Any], report: Report) -> Iterator[Squares]:
        """Those of the images that can be used."""

    @spanned("project")
    def squares(self, part: SquaresPart, report: Report) -> SquaresFound:
        """Second pass."""
        direction, t = torch.from_numpy(np.array(part.direction)), self.facts.grid[0] * self.facts.grid[1]
        scores, flat = [np.zeros((0, t))], [np.zeros((0, t), bool)]
        shown: list[Tensor] = [torch.zeros(0, 3, self.encoder.side_px, self.encoder.side_px)]
        for views, tokens in self.squares_of(part.items, report):
            scores.append(project(tokens, direction))
            flat.append(flat_patches(views, self.encoder.std, self.encoder.grid).flatten(1).cpu().numpy())
            if (missing := part.shown - sum(len(each) for each in shown)) > 0:
                shown.append(views[:missing].float().cpu())
        return SquaresFound(np.concatenate(scores), np.concatenate(flat), torch.cat(shown).numpy())


class Encoded(NamedTuple):
    """A full batch. rows: positions of the images that could be decoded, whose views come first."""

    rows: list[int]
    views: Float[Tensor, "b 3 s s"]
    tokens: Float[Tensor, "b t k"]
    features: Float[Tensor, "b d"]


class WholeImages(Passes):
    """Images as the encoder's own preprocessing shows them, in batches of `batch_size`, always filled up."""

    def __init__(self, encoder: Encoder, run: Run, batch_size: int) -> None:
        super().__init__(encoder, run)
        self.images, self.batch_size = run.dataset.column(IMAGES), batch_size

    @spanned("moments")
    def tokens(self, part: TokensPart, report: Report) -> TokensFound:
        embeddings, non_finite = Embeddings(len(part.rows), self.encoder.width, part.index), 0
        moments: Moments | None = None
        for rows, _, tokens, features in self._encoded(part.items, report):
            finite = _finite(tokens) & _finite(features)
            for i, row in enumerate(rows):
                if not finite[i]:
                    non_finite += 1
                    continue
                embeddings.put(row, features[i])
                if part.fitted[row]:
                    moments = moments or Moments(tokens.shape[-1])
                    moments.add(tokens[i])
        return TokensFound(part.rows, embeddings.present, non_finite, moments, embeddings, self.facts)

    def squares_of(self, items: Sequence[int], report: Report) -> Iterator[Squares]:
        for rows, views, tokens, features in self._encoded(items, report):
            kept = (_finite(tokens) & _finite(features))[: len(rows)].nonzero().squeeze(1)
            yield Squares(views[kept], tokens[kept])

    def _encoded(self, places: Sequence[int], report: Report) -> Iterator[Encoded]:
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

        parts = batches(range(len(places)), self.batch_size)
        for seen, found in side_by_side(encode, parts, self.run.device, self.run.threads):
            if found is not None:
                yield found
            report(seen)


class StoredViews(Passes):
    """The views of round 0 of the stored pairs, rendered as `quality` renders them.

    Squares are the centre squares of the same images: things lie near the centre of a photograph, but anywhere in a
    random crop of it.
    """

    def __init__(self, encoder: Encoder, run: Run, pairs: str = PAIRS) -> None:
        super().__init__(encoder, run)
        self.pairs, self.images = run.dataset.column(pairs), run.dataset.column(IMAGES)
        genview = genview_of(run.dataset, pairs)
        self.genview = None if genview is None else run.dataset.column(genview)

    @spanned("moments")
    def tokens(self, part: TokensPart, report: Report) -> TokensFound:
        def encode(rows: list[RowViews]) -> tuple[list[RowViews], Tensor]:
            return rows, torch.cat(list(encode_rows(self.encoder, rows)))

        row_of = {key: row for row, key in enumerate(part.items)}
        present, non_finite = np.zeros(len(part.items), bool), 0
        moments: Moments | None = None
        for rows, maps in self._side_by_side(encode, part.items, report):
            for row, own in zip(rows, maps.split([row.index.size for row in rows]), strict=True):
                if not bool(own.isfinite().all()):
                    non_finite += 1
                    continue
                present[row_of[row.key]] = True
                moments = moments or Moments(own.shape[-1])
                moments.add(own.flatten(0, 2))
        return TokensFound(part.rows, present, non_finite, moments, None, self.facts)

    def squares_of(self, items: Sequence[str], report: Report) -> Iterator[Squares]:
        def encode(rows: list[RowViews]) -> list[Squares]:
            parts = render_rows(self.encoder, [centre_square(row, self.encoder.side_px) for row in rows])
            return [Squares(views, encode_views(self.encoder, views).flatten(1, 2)) for views in parts]

        for squares in self._side_by_side(encode, items, report):
            yield from squares

    def _side_by_side(self, encode: Any, keys: Sequence[str], report: Report) -> Iterator[Any]:
        return side_by_side(encode, self._rows(keys, report), self.run.device, self.run.threads)

    def _rows(self, keys: Sequence[str], report: Report) -> Iterator[list[RowViews]]:
        """Rows that can be decoded, with the views of round 0, in lists that are never empty."""
        for part in batches(keys, ROWS_AT_ONCE):
            read = [self._read(key) for key in part]
            if rows := [row for row in read if isinstance(row, RowViews)]:
                yield rows
            report(len(part))

    def _read(self, key: str) -> RowViews | Reject:
        recipes = stored_recipes(key, self.pairs.fields(self.pairs.place_of[key]), self.pairs)[:1]
        place = None if self.genview is None else self.genview.place_of.get(key)
        generated = None if self.genview is None or place is None else self.genview.fields(place)
        image = self.images.fields(self.images.place_of[key])
        return read_views(key, recipes, image, generated, self.run.device)


def _finite(outputs: Shaped[Tensor, "n ..."]) -> Bool[Tensor, " n"]:
    """Whether all that the encoder gave for each image is finite."""
    return outputs.isfinite().flatten(1).all(dim=1)
