"""Stage `quality`: GenView's quality of every stored pair, from one forward pass of a frozen encoder per stored view.

KEY.quality.npy: float32 [r c], the pairs of every round in the order of `pairs.order.pair_index`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.names import encoder_reads, resolve_precision
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder, refuse_unused_folder
from viewkit.pipelines.encoders.stored_views import (
    IMAGES,
    RowViews,
    generated_input,
    genview_of,
    read_views,
    stored_recipes,
)
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.contract import MapStage, Run, ShardFn
from viewkit.pipelines.engine.rejects import reject
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.foreground.rating import rate_views
from viewkit.pipelines.foreground.stage import ViewsForegroundStage
from viewkit.pipelines.pairs.generated import NOT_IN_SUBSET
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.pairs.without_view import reject_without_pairs
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.shards.codecs import encode_npy
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError
from viewkit.shards.row import Reject, Row
from viewkit.shards.sources import ColumnSources, Sources

QUALITY = "quality"
NAME = re.compile(r"quality(_[A-Za-z0-9_-]{1,80})?")
ROWS_AT_ONCE = 16


class QualityStage(MapStage[QualityConfig]):
    """Needs the artifact that `ViewsForegroundStage` writes with ``config.foreground()``. weights, encoder_weights: as
    there. pairs: the column of the pairs to rate. column: the one to write.

    Memory: the images of `ROWS_AT_ONCE` rows and `views_per_pass` views with their maps.
    Rejects: ``no_pairs``, ``not_in_subset``, ``no_generated_view``, ``undecodable``, ``non_finite``.

    Version 2: images that `generate` was told to leave out have a reason of their own.
    """

    name = "quality"
    version: ClassVar[int] = 2
    by_choice: ClassVar[frozenset[str]] = frozenset({NOT_IN_SUBSET})
    elsewhere: ClassVar[str] = "another --column"
    shown_as = "quality"
    holds: ClassVar[Mapping[str, str]] = {
        "quality.npy": "float32 [r c]: GenView's q of the c = v (v - 1) / 2 pairs of every round, in the order of "
        "`pairs`; -2 ... 2",
    }

    def __init__(
        self,
        weights: Path | None = None,
        encoder_weights: Path | None = None,
        pairs: str = PAIRS,
        column: str = QUALITY,
    ) -> None:
        if not NAME.fullmatch(column):
            raise ConfigError(f"quality: column is '{column}'; call it {QUALITY} or {QUALITY}_NAME")
        self.weights, self.encoder_weights = weights, encoder_weights
        self.pairs, self.column = pairs, column
        self.foreground = ViewsForegroundStage(pairs=pairs).writes

    @property
    def writes(self) -> str:
        return self.column

    def on_device(self, config: QualityConfig, device: str) -> QualityConfig:
        return replace(config, precision=resolve_precision(config.precision, device, config.encoder))

    def reads(self, config: QualityConfig) -> tuple[str, ...]:
        return (IMAGES, self.pairs, self.foreground, *encoder_reads(config.encoder))

    def check(self, config: QualityConfig) -> None:
        refuse_unused_folder(config.encoder, self.weights)

    def inputs(self, config: QualityConfig, dataset: Dataset) -> Mapping[str, str]:
        files = encoder_inputs(config.encoder, self.weights, self.encoder_weights)
        return {**super().inputs(config, dataset), **generated_input(dataset, self.name, self.pairs), **files}

    def sources(self, config: QualityConfig, dataset: Dataset) -> Sources:
        genview = genview_of(dataset, self.pairs)
        return ColumnSources(dataset, (IMAGES, self.pairs) if genview is None else (IMAGES, self.pairs, genview))

    def prepare(self, config: QualityConfig, run: Run) -> ShardFn:
        """`RefusedError` when the component was fitted with another encoder."""
        foreground = Foreground.read(run.dataset.artifact(self.foreground), "viewkit quality")
        pairs, genview = run.dataset.column(self.pairs), genview_of(run.dataset, self.pairs)
        encoder = open_encoder(
            config.encoder,
            run.dataset,
            weights=self.weights,
            encoder_weights=self.encoder_weights,
            device=run.device,
            precision=resolve_precision(config.precision, run.device, config.encoder),
            side_px=config.side_px,
        )
        foreground.check_encoder(encoder.fingerprint())
        direction = foreground.direction.to(run.device)

        def rate(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            for batch in batches(rows, ROWS_AT_ONCE):
                yield from rate_rows([_read(row, pairs, genview, run.device) for row in batch], encoder, direction)

        return rate


def _read(row: Row, column: Column, genview: str | None, device: str) -> RowViews | Reject:
    pairs = row.joined[column.name]
    if pairs is None:
        return reject_without_pairs(row.key, column)
    generated = None if genview is None else row.joined.get(genview)
    return read_views(row.key, stored_recipes(row.key, pairs, column), row.fields, generated, device)


def rate_rows(
    rows: Sequence[RowViews | Reject], encoder: Encoder, direction: Float64[Tensor, " k"]
) -> Iterator[Row | Reject]:
    """One row or reject for each of `rows`, in order."""
    readable = [row for row in rows if isinstance(row, RowViews)]
    rated = iter(rate_views(readable, encoder, direction))
    for row in rows:
        if isinstance(row, Reject):
            yield row
            continue
        quality = next(rated)
        if np.isfinite(quality).all():
            yield Row(row.key, {"quality.npy": encode_npy(quality)})
        else:
            yield reject(row.key, "non_finite", "the encoder's map of a view of this image is not finite")
