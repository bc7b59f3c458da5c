"""Stage `quality`: GenView's quality of every stored pair, from one look of a frozen encoder at every stored view.

KEY.quality.npy: float32 [r c], the pairs of every round in the order of `vs2fi.pairs.pair_index`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from viewkit.pipelines.quality.component import QualityComponent
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.pipelines.quality.encoders import MapEncoder, create_encoder
from viewkit.pipelines.quality.inputs import GENVIEW, IMAGES, PAIRS, columns_of, more_inputs
from viewkit.pipelines.quality.quality import pair_quality
from viewkit.pipelines.quality.soft_masks import soft_masks, split_features
from viewkit.pipelines.quality.views import RowViews, maps_of, read_views, stored_recipes
from viewkit.pipelines.stage import MapStage, Run, ShardFn
from viewkit.shards.codecs import encode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.row import Reject, Row
from viewkit.shards.sources import ColumnSources, Sources

ROWS_AT_ONCE = 16


class QualityStage(MapStage[QualityConfig]):
    """Needs the artifact that `QualityComponentStage` writes with the same config. weights: as there.

    Memory: the images of `ROWS_AT_ONCE` rows and `views_at_once` views with their maps.
    Rejects: ``no_pairs``, ``no_generated_view``, ``undecodable_image``, ``non_finite``.
    """

    name = "quality"
    shown_as = "quality"
    holds: ClassVar[Mapping[str, str]] = {
        "quality.npy": "float32 [r c]: GenView's q of the c = v (v - 1) / 2 pairs of every round, in the order of "
        "`pairs`; -2 ... 2",
    }
    writes = "quality"

    def __init__(self, weights: Path | None = None) -> None:
        self.weights = weights

    def reads(self, config: QualityConfig) -> tuple[str, ...]:
        inputs = (IMAGES, PAIRS, "quality_component")
        return (*inputs, "estimator") if config.encoder == "estimator" else inputs

    def inputs(self, config: QualityConfig, dataset: Dataset) -> Mapping[str, str]:
        inputs = super().inputs(config, dataset)
        return {**inputs, **more_inputs(self.name, config, dataset, self.weights)}

    def sources(self, config: QualityConfig, dataset: Dataset) -> Sources:
        return ColumnSources(dataset, columns_of(dataset))

    def prepare(self, config: QualityConfig, run: Run) -> ShardFn:
        """`RefusedError` when the component was fitted with another encoder."""
        component = QualityComponent.read(run.dataset.artifact("quality_component"))
        encoder = create_encoder(config, run.dataset, self.weights, run.device)
        component.check_encoder(encoder.fingerprint())
        direction = component.direction.to(run.device)

        def rate(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            while batch := list(islice(rows, ROWS_AT_ONCE)):
                yield from rate_rows([_read(row, run.device) for row in batch], encoder, direction)

        return rate


def _read(row: Row, device: str) -> RowViews | Reject:
    pairs = row.joined[PAIRS]
    if pairs is None:
        return Reject(row.key, "no_pairs", "column 'pairs' rejected this row")
    return read_views(row.key, stored_recipes(row.key, pairs), row.fields, row.joined.get(GENVIEW), device)


def rate_rows(
    rows: Sequence[RowViews | Reject], encoder: MapEncoder, direction: Float64[Tensor, " k"]
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
            yield Reject(row.key, "non_finite", "the encoder's map of a view of this image is not finite")


def rate_views(
    rows: Sequence[RowViews], encoder: MapEncoder, direction: Float64[Tensor, " k"]
) -> list[Float32[np.ndarray, "r c"]]:
    """q of every pair of every round of the rows; every view is embedded once, not once a pair."""
    if not rows:
        return []
    parts = [split_features(maps, soft_masks(maps, direction)) for maps in maps_of(encoder, rows)]
    features = torch.cat(parts).split([row.index.size for row in rows])  # (r v) 2 k each
    return [
        pair_quality(own.unflatten(0, row.index.shape)).float().cpu().numpy()
        for row, own in zip(rows, features, strict=True)
    ]
