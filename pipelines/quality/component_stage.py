"""Stage `quality_component`: fit, once, the component that tells foreground in the maps of stored views."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, UInt8

from viewkit.pipelines.foreground.component import Component, Evidence, fit_component, resolve_sign, sign_evidence
from viewkit.pipelines.foreground.covariance import Moments
from viewkit.pipelines.foreground.letterbox import flat_patches
from viewkit.pipelines.foreground.sheet import draw_masks
from viewkit.pipelines.quality.component import MASKS, QualityComponent
from viewkit.pipelines.quality.config import QualityConfig
from viewkit.pipelines.quality.encoders import MapEncoder, create_encoder
from viewkit.pipelines.quality.inputs import GENVIEW, IMAGES, PAIRS, has_generated, more_inputs
from viewkit.pipelines.quality.soft_masks import soft_masks
from viewkit.pipelines.quality.views import (
    RowViews,
    centre_square,
    encode_views,
    maps_of,
    read_views,
    stored_recipes,
    views_at_once,
    views_of,
)
from viewkit.pipelines.seeds import smallest
from viewkit.pipelines.stage import FitStage, Run
from viewkit.pipelines.views.render import render
from viewkit.shards.codecs import encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import DataError
from viewkit.shards.files import write_whole
from viewkit.shards.row import Reject

LEAST_IMAGES = 10
ROWS_AT_ONCE = 16
SHOWN = 16
"""Images on the contact sheet of masks."""


class QualityComponentStage(FitStage[QualityConfig]):
    """weights: a .safetensors file, for an encoder whose name ends in ``/file``.

    The component is that of the views' maps. Its sign is read off the centre squares of the same images: things lie
    near the centre of a photograph, but anywhere in a random crop of it.
    """

    name = "quality_component"
    shown_as = "quality_component"
    holds: ClassVar[Mapping[str, str]] = {
        "component.safetensors": "direction [k]: first principal component of the views' maps, pointing to foreground",
        "component.json": "encoder fingerprint, sign and its evidence, eigenvalue ratio, images and tokens of the fit",
        "masks.png": "contact sheet of foreground masks under both signs",
    }
    writes = "quality_component"

    def __init__(self, weights: Path | None = None) -> None:
        self.weights = weights

    def reads(self, config: QualityConfig) -> tuple[str, ...]:
        return (IMAGES, PAIRS, "estimator") if config.encoder == "estimator" else (IMAGES, PAIRS)

    def inputs(self, config: QualityConfig, dataset: Dataset) -> Mapping[str, str]:
        inputs = super().inputs(config, dataset)
        return {**inputs, **more_inputs(self.name, config, dataset, self.weights)}

    def fit(self, config: QualityConfig, run: Run) -> Mapping[str, Any]:
        keys = smallest(run.dataset.column(PAIRS).keys(), config.sample)
        encoder = create_encoder(config, run.dataset, self.weights, run.device)
        run.progress.start(self.name, 2 * len(keys) + min(SHOWN, len(keys)), "images")
        moments = view_moments(keys, encoder, run)
        component = fit_component(moments.covariance(), moments.mean())
        for doubt in component.doubts():
            run.progress.message(f"quality: {doubt}")
        evidence = square_evidence(keys, encoder, component, run)
        write_whole(run.folder / MASKS, encode_png(_sheet(keys, encoder, component, run)))
        sign = _sign(evidence, config)
        numbers = {
            "images": moments.images,
            "tokens": moments.tokens,
            "sample_digest": digest(keys),
            "sign": "+" if sign > 0 else "-",
            "t": round(evidence.t, 3),
            "skewness": round(evidence.skewness, 4),
            "flat_share": round(evidence.flat, 4),
            "eigenvalue_ratio": component.eigenvalue_ratio,
            "explained": component.explained,
            "grid": list(encoder.grid),
        }
        QualityComponent(sign * component.vector, encoder.fingerprint()).write(run.folder, numbers)
        return numbers

    def plan(self, config: QualityConfig, run: Run) -> Mapping[str, Any]:
        pairs = run.dataset.column(PAIRS)
        sample = min(pairs.num_rows, config.sample)
        views = stored_recipes(pairs.row(0).key, pairs.fields(0)).shape[1] + 1 if sample else 0
        encoder = create_encoder(config, run.dataset, self.weights, run.device)
        batch = torch.zeros(views_at_once(encoder), 3, encoder.side_px, encoder.side_px)
        encoder.maps(batch)
        start = time.monotonic()
        encoder.maps(batch)
        view_s = (time.monotonic() - start) / len(batch)
        return {"sample": sample, "encoded": sample * views, "estimated_s": round(sample * views * view_s, 1)}


def view_moments(keys: Sequence[str], encoder: MapEncoder, run: Run) -> Moments:
    """Second moments of the maps' positions, over the views of round 0 of every row that can be decoded."""
    moments: Moments | None = None
    for rows in _batches(keys, run):
        maps = torch.cat(list(maps_of(encoder, rows)))
        for row, own in zip(rows, maps.split([row.index.size for row in rows]), strict=True):
            if not bool(own.isfinite().all()):
                raise DataError(f"quality: the encoder's map of row {row.key} is not finite; use --precision fp32")
            moments = moments or Moments(own.shape[-1])
            moments.add(own.flatten(0, 2))
    if moments is None or moments.images < LEAST_IMAGES:
        found = 0 if moments is None else moments.images
        raise DataError(
            f"quality: {run.dataset.path} has {found} rows with pairs whose images can be decoded, and a component "
            f"takes {LEAST_IMAGES} or more; score more images"
        )
    return moments


def square_evidence(keys: Sequence[str], encoder: MapEncoder, component: Component, run: Run) -> Evidence:
    """What the centre squares of the same images say about the sign; patches of one colour are left out."""
    direction = component.vector.to(run.device)
    scores, flat = [], []
    for rows in _batches(keys, run):
        for views in views_of(encoder, [centre_square(row, encoder.side_px) for row in rows]):
            scores.append((encode_views(encoder, views).double() @ direction).cpu().numpy())
            flat.append(flat_patches(views, encoder.std, encoder.grid).cpu().numpy())
    return sign_evidence(np.concatenate(scores), np.concatenate(flat))


def _batches(keys: Sequence[str], run: Run) -> Iterator[list[RowViews]]:
    """Rows that can be decoded, with the views of round 0, in lists that are never empty."""
    images, pairs = run.dataset.column(IMAGES), run.dataset.column(PAIRS)
    genview = run.dataset.column(GENVIEW) if has_generated(run.dataset) else None

    def read(key: str) -> RowViews | Reject:
        recipes = stored_recipes(key, pairs.fields(pairs.place_of[key]))[:1]
        place = None if genview is None else genview.place_of.get(key)
        generated = None if genview is None or place is None else genview.fields(place)
        return read_views(key, recipes, images.fields(images.place_of[key]), generated, run.device)

    for start in range(0, len(keys), ROWS_AT_ONCE):
        part = [read(key) for key in keys[start : start + ROWS_AT_ONCE]]
        if rows := [row for row in part if isinstance(row, RowViews)]:
            yield rows
        run.progress.advance(len(part))


def _sign(evidence: Evidence, config: QualityConfig) -> int:
    """As `resolve_sign`, with the words of this stage."""
    try:
        return resolve_sign(evidence, config.sign)
    except DataError as error:
        raise DataError(
            f"quality: which end of the component is foreground remains open (centre against border: t "
            f"{evidence.t:+.1f}, skewness {evidence.skewness:+.2f}); look at quality_component/masks.png in the "
            "dataset, and run 'viewkit quality DATASET' with --sign + or --sign - (or skewness: the rarer end)"
        ) from error


def _sheet(keys: Sequence[str], encoder: MapEncoder, component: Component, run: Run) -> UInt8[np.ndarray, "h w 3"]:
    """Contact sheet of the sample's first images: where their masks exceed 1/2."""
    rows = [row for batch in _batches(keys[:SHOWN], run) for row in batch]
    squares = [centre_square(row, encoder.side_px) for row in rows]
    maps = torch.cat(list(maps_of(encoder, squares)))
    direction = component.vector.to(maps.device)

    def masks(sign: int) -> Bool[np.ndarray, "n h w"]:
        found: np.ndarray = (soft_masks(maps, sign * direction) > 0.5).cpu().numpy()
        return found

    pixels = [
        render(
            row.images, row.recipes[0], row.index[0], side_px=encoder.side_px, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)
        )[0]
        for row in squares
    ]
    crops = [(255 * view.permute(1, 2, 0)).round().to(torch.uint8).cpu().numpy() for view in pixels]
    return draw_masks(crops, masks(1), masks(-1))
