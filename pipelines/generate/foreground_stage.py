"""Stage `foreground`: fit the component that tells foreground, once, before `generate` uses it for every row."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float64, UInt8
from torch import Tensor

from viewkit.pipelines.foreground.component import (
    Component,
    fit_component,
    released_sign,
    resolve_sign,
    sign_evidence,
)
from viewkit.pipelines.foreground.covariance import Moments
from viewkit.pipelines.foreground.letterbox import flat_patches
from viewkit.pipelines.foreground.sheet import draw_masks
from viewkit.pipelines.foreground.threshold import count_foreground, fit_threshold
from viewkit.pipelines.generate.config import ForegroundConfig
from viewkit.pipelines.generate.embeddings import Embeddings
from viewkit.pipelines.generate.encoders import Encoder, create_encoder, encoder_inputs
from viewkit.pipelines.generate.foreground import INDEX, MASKS, Foreground, project
from viewkit.pipelines.generate.levels import LEVELS, adaptive_level
from viewkit.pipelines.generate.padding import padded
from viewkit.pipelines.seeds import smallest
from viewkit.pipelines.stage import FitStage, Run
from viewkit.shards.codecs import decode_image, encode_png
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import DataError
from viewkit.shards.files import write_whole

LEAST_IMAGES = 10
SHOWN = 16
"""Images on the contact sheet of masks."""
MOST_NON_FINITE = 0.01
"""Share of the images that may be left out (one always may); more are a sign of a broken encoder or precision."""


class ForegroundStage(FitStage[ForegroundConfig]):
    """weights: the generator's folder, for an encoder in it. encoder_weights: safetensors file with the weights of a
    ``timm:`` or ``open_clip:`` encoder, instead of the published ones. batch_size: images a forward pass.

    Version 2: images whose tokens are not finite are left out; flat patches and huge scores do not decide the sign.
    """

    name = "foreground"
    version = 2
    shown_as = "foreground"
    holds: ClassVar[Mapping[str, str]] = {
        "foreground.safetensors": "component [k], threshold, mean and std [d] of the embeddings",
        "foreground.json": "encoder fingerprint, sign and its evidence, eigenvalue ratio, share, images per level",
        "masks.png": "contact sheet of foreground masks under both signs",
        "index.npy": "for retrieval: embedding [d] of every image, in the order of `images`",
    }
    writes = "foreground"

    def __init__(self, weights: Path | None = None, batch_size: int = 16, encoder_weights: Path | None = None) -> None:
        self.weights = weights
        self.batch_size = batch_size
        self.encoder_weights = encoder_weights

    def reads(self, config: ForegroundConfig) -> tuple[str, ...]:
        return ("images", "estimator") if config.encoder == "estimator" else ("images",)

    def inputs(self, config: ForegroundConfig, dataset: Dataset) -> Mapping[str, str]:
        files = encoder_inputs(config.encoder_name, self.weights, self.encoder_weights)
        return {**super().inputs(config, dataset), **files}

    def fit(self, config: ForegroundConfig, run: Run) -> Mapping[str, Any]:
        images = run.dataset.column("images")
        keys = smallest(images.keys(), config.sample)
        sample = sorted(images.place_of[key] for key in keys)
        if len(sample) < LEAST_IMAGES:
            raise DataError(
                f"foreground: {run.dataset.path} has {len(sample)} images, and a component takes {LEAST_IMAGES} or more"
            )
        encoder = self._encoder(config, run)
        every = range(images.num_rows) if config.index else sample
        run.progress.start(self.name, len(every) + len(sample), "images")

        embeddings = Embeddings(len(every), encoder.width, run.folder / INDEX if config.index else None)
        moments, non_finite = self._look(images, every, set(sample), encoder, embeddings, run)
        component = fit_component(moments.covariance(), moments.mean())
        for doubt in component.doubts():
            run.progress.message(f"foreground: {doubt}; look at foreground/masks.png")
        looked, scores, flat = self._scores(images, sample, encoder, component, run)
        write_whole(run.folder / MASKS, encode_png(_masks(images, looked, encoder, scores, config.share)))
        evidence = sign_evidence(
            scores.reshape(-1, *encoder.grid), flat.reshape(-1, *encoder.grid), released_sign(component.vector)
        )
        sign = resolve_sign(evidence, config.sign)
        threshold = fit_threshold(sign * scores.ravel(), config.share)
        mean, std = embeddings.statistics()
        if config.index:
            embeddings.to_index(mean, std)

        counts = count_foreground(sign * scores, threshold)
        levels = [adaptive_level(int(count), scores.shape[1]) for count in counts]
        numbers = {
            "images": len(scores),
            "undecodable": int((~embeddings.present).sum()) - non_finite,
            "non_finite": non_finite,
            "tokens": moments.tokens,
            "sample_digest": digest(keys),
            "sign": "+" if sign > 0 else "-",
            "t": round(evidence.t, 3),
            "skewness": round(evidence.skewness, 4),
            "flat_patches": round(evidence.flat, 4),
            "released_sign": {1: "+", -1: "-", None: None}[evidence.released],
            "largest_channel": component.largest_channel,
            "largest_channel_share": round(component.largest_channel_share, 4),
            "eigenvalue_ratio": component.eigenvalue_ratio,
            "explained": component.explained,
            "foreground_share": float(counts.mean() / scores.shape[1]),
            "images_per_level": {str(level): levels.count(level) for level in LEVELS},
        }
        fitted = Foreground(sign * component.vector, threshold, mean, std, encoder.fingerprint())
        fitted.write(run.folder, numbers)
        return numbers

    def plan(self, config: ForegroundConfig, run: Run) -> Mapping[str, Any]:
        images = run.dataset.column("images").num_rows
        sample = min(images, config.sample)
        encoder = self._encoder(config, run)
        batch = [np.zeros((encoder.preprocess.side_px, encoder.preprocess.side_px, 3), np.uint8)] * self.batch_size
        encoder.tokens_and_embedding(batch)
        start = time.monotonic()
        encoder.tokens_and_embedding(batch)
        image_s = (time.monotonic() - start) / self.batch_size
        passes = (images if config.index else sample) + sample
        return {"images": images, "sample": sample, "encoded": passes, "estimated_s": round(passes * image_s, 1)}

    def _encoder(self, config: ForegroundConfig, run: Run) -> Encoder:
        name = config.encoder_name
        return create_encoder(name, run.dataset, self.weights, run.device, config.precision, self.encoder_weights)

    def _look(
        self,
        images: Column,
        places: Sequence[int],
        sample: set[int],
        encoder: Encoder,
        embeddings: Embeddings,
        run: Run,
    ) -> tuple[Moments, int]:
        """First pass: moments of the sample's tokens, and how many images gave tokens that are not finite. All other
        embeddings go into `embeddings`."""
        moments: Moments | None = None
        non_finite = 0
        for rows, x in self._inputs(images, places, encoder, run):
            tokens, embedding = encoder.look(x)
            finite = _finite(tokens, embedding)
            for i, row in enumerate(rows):
                if not finite[i]:
                    non_finite += 1
                    continue
                embeddings.put(row, embedding[i])
                if places[row] in sample:
                    moments = moments or Moments(tokens.shape[2])
                    moments.add(tokens[i])
        if non_finite > max(1, MOST_NON_FINITE * len(places)):
            raise DataError(
                f"foreground: the encoder's outputs for {non_finite} of {len(places)} images are not finite; use "
                "--precision fp32"
            )
        if moments is None or moments.images < LEAST_IMAGES:
            raise DataError(
                f"foreground: fewer than {LEAST_IMAGES} images of the sample can be decoded; rerun 'viewkit pack'"
            )
        return moments, non_finite

    def _scores(
        self, images: Column, sample: Sequence[int], encoder: Encoder, component: Component, run: Run
    ) -> tuple[list[int], Float64[np.ndarray, "n t"], Bool[np.ndarray, "n t"]]:
        """Second pass: places of the sample's images that count, projections of their tokens, and which are flat.

        Encoding twice costs less than keeping the tokens, which are 13 GB for 10,000 images of ViT-H.
        """
        places, scores, flat = [], [], []
        for rows, x in self._inputs(images, sample, encoder, run):
            tokens, embedding = encoder.look(x)
            finite = _finite(tokens, embedding)
            kept = [i for i in range(len(rows)) if finite[i]]
            places += [sample[rows[i]] for i in kept]
            scores.append(project(tokens[kept], component.vector))
            flat.append(flat_patches(x[kept], encoder.preprocess.std, encoder.grid).flatten(1).cpu().numpy())
        return places, np.concatenate(scores), np.concatenate(flat)

    def _inputs(
        self, images: Column, places: Sequence[int], encoder: Encoder, run: Run
    ) -> Iterator[tuple[list[int], Float[Tensor, "b 3 s s"]]]:
        """Positions in `places` of the images that can be decoded, and full batches that begin with their inputs."""
        for start in range(0, len(places), self.batch_size):
            part = range(start, min(start + self.batch_size, len(places)))
            decoded = [(row, image) for row in part if (image := _decoded(images, places[row])) is not None]
            if decoded:
                yield (
                    [row for row, _ in decoded],
                    encoder.inputs(padded([image for _, image in decoded], self.batch_size)),
                )
            run.progress.advance(len(part))


def _finite(tokens: Float[Tensor, "n t k"], embedding: Float[Tensor, "n d"]) -> list[bool]:
    """Whether all that the encoder gave for an image is finite."""
    kept: list[bool] = (tokens.isfinite().flatten(1).all(dim=1) & embedding.isfinite().all(dim=1)).tolist()
    return kept


def _decoded(images: Column, place: int) -> UInt8[np.ndarray, "h w 3"] | None:
    """The image, or None where its bytes cannot be decoded; `generate` rejects such a row and says why."""
    fields = images.fields(place)  # a damaged shard stops the stage; only what cannot be decoded is passed over
    try:
        return decode_image(fields)
    except DataError:
        return None


def _masks(
    images: Column, sample: Sequence[int], encoder: Encoder, scores: Float64[np.ndarray, "n t"], share: float
) -> UInt8[np.ndarray, "h w 3"]:
    """Contact sheet of the sample's first images."""
    shown = [image for place in sample[:SHOWN] if (image := _decoded(images, place)) is not None]

    def masks(sign: int) -> Bool[np.ndarray, "n gh gw"]:
        threshold = fit_threshold(sign * scores.ravel(), share)
        return (sign * scores[: len(shown)] > threshold).reshape(-1, *encoder.grid)

    return draw_masks([encoder.preprocess.crop(image) for image in shown], masks(1), masks(-1))
