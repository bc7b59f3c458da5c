"""Stage `generate`: foreground share, noise level and one generated view of every image."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import UInt8

from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.encoders import Encoder, create_encoder, needed
from viewkit.pipelines.generate.foreground import Foreground
from viewkit.pipelines.generate.generators.face import Failed, Generated, Generator
from viewkit.pipelines.generate.generators.table import GENERATORS
from viewkit.pipelines.generate.levels import adaptive_level, sample_level
from viewkit.pipelines.generate.padding import padded
from viewkit.pipelines.generate.unclip_folder import ENCODER_PARTS, PARTS, UnclipFolder
from viewkit.pipelines.stage import MapStage, Run, ShardFn
from viewkit.shards.codecs import decode_image, encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.row import Reject, Row


class GenerateStage(MapStage[GenerateConfig]):
    """Needs the artifact that `ForegroundStage` writes with ``config.foreground()``.

    weights: the Stable unCLIP folder, for the generator or the encoder ``unclip``. batch_size: rows a forward pass;
    every batch is filled up to it.
    """

    name = "generate"
    shown_as = "genview"
    holds: ClassVar[Mapping[str, str]] = {
        "jpg, png or webp": "the generated view",
        "json": "foreground_share, level (0-999), seed, attempt, generator; for retrieval also neighbour and cosine",
    }
    writes = "genview"

    def __init__(self, weights: Path | None = None, batch_size: int = 16) -> None:
        self.weights = weights
        self.batch_size = batch_size

    def reads(self, config: GenerateConfig) -> tuple[str, ...]:
        inputs = ("images", "foreground")
        return (*inputs, "estimator") if config.encoder_name == "estimator" else inputs

    def inputs(self, config: GenerateConfig, dataset: Dataset) -> Mapping[str, str]:
        inputs = dict(super().inputs(config, dataset))
        if "unclip" in (config.generator, config.encoder_name):
            parts = PARTS if config.generator == "unclip" else ENCODER_PARTS
            inputs |= UnclipFolder(needed(self.weights), parts).digests()
        return inputs

    def prepare(self, config: GenerateConfig, run: Run) -> ShardFn:
        foreground = Foreground.read(run.dataset.artifact("foreground"))
        encoder = create_encoder(config.encoder_name, run.dataset, self.weights, run.device, config.precision)
        foreground.check_encoder(encoder.fingerprint())
        generator = GENERATORS[config.generator](config, run, encoder, foreground, self.weights)
        job = Job(config, run, encoder, foreground, generator, self.batch_size)
        return job.views


@dataclass(frozen=True)
class Image:
    """A decoded row with what decides its view. count: its foreground tokens, of `total`."""

    key: str
    pixels: UInt8[np.ndarray, "h w 3"]
    embedding: torch.Tensor
    count: int
    total: int
    level: int


@dataclass(frozen=True)
class Job:
    """One worker's loaded models, and the work on rows."""

    config: GenerateConfig
    run: Run
    encoder: Encoder
    foreground: Foreground
    generator: Generator
    batch_size: int

    def views(self, rows: Iterator[Row]) -> Iterator[Row | Reject]:
        """One row or reject for each of `rows`, in order."""
        while batch := list(islice(rows, self.batch_size)):
            decoded, outcomes = _decode(batch)
            outcomes |= self._generate(self._look(decoded))
            yield from (outcomes[row.key] for row in batch)

    def _look(self, decoded: Mapping[str, UInt8[np.ndarray, "h w 3"]]) -> list[Image | Reject]:
        """Foreground, level and embedding of up to `batch_size` images, by one forward pass of the encoder."""
        if not decoded:
            return []
        pixels = padded(list(decoded.values()), self.batch_size)
        tokens, embedding = self.encoder.tokens_and_embedding(pixels)
        finite = (tokens.isfinite().flatten(1).all(dim=1) & embedding.isfinite().all(dim=1)).tolist()
        if self.generator.encoder is not self.encoder:
            embedding = self.generator.condition(pixels)
        counts, total = self.foreground.counts(tokens).tolist(), tokens.shape[1]
        return [
            Image(key, pixels[i], embedding[i], counts[i], total, self._level(key, counts[i], total))
            if finite[i]
            else Reject(key, "non_finite", "the encoder's tokens or embedding are not finite")
            for i, key in enumerate(decoded)
        ]

    def _level(self, key: str, count: int, total: int) -> int:
        if self.config.strategy == "adaptive":
            return adaptive_level(count, total)
        if self.config.strategy == "random":
            return sample_level(self.run.generator(key, "level"))
        return self.config.level

    def _generate(self, seen: Sequence[Image | Reject]) -> dict[str, Row | Reject]:
        """Views of the images; what fails is drawn again with the next attempt's seed, in a batch filled up again."""
        outcomes: dict[str, Row | Reject] = {each.key: each for each in seen if isinstance(each, Reject)}
        left = [each for each in seen if isinstance(each, Image)]
        for attempt in range(self.config.attempts):
            failed = []
            for image, result in zip(left, self._sample(left, attempt), strict=True):
                if isinstance(result, Generated):
                    outcomes[image.key] = self._row(image, attempt, result)
                else:
                    outcomes[image.key] = Reject(image.key, result.reason, result.detail)
                    failed.append(image)
            left = failed
        return outcomes

    def _sample(self, images: Sequence[Image], attempt: int) -> list[Generated | Failed]:
        if not images:
            return []
        batch = padded(images, self.batch_size)
        streams = [self.run.generator(image.key, "view", attempt) for image in batch]
        embedding = torch.stack([image.embedding for image in batch])
        noise = np.stack([s.standard_normal(embedding.shape[1], dtype=np.float32) for s in streams])
        latents = np.stack([s.standard_normal(self.generator.latent_shape or (0,), dtype=np.float32) for s in streams])
        level = torch.tensor([image.level for image in batch])
        conditioning = self.generator.perturb(embedding, level, torch.from_numpy(noise))
        results = self.generator.sample(conditioning, torch.from_numpy(latents), [image.key for image in batch])
        return results[: len(images)]

    def _row(self, image: Image, attempt: int, view: Generated) -> Row:
        facts: dict[str, Any] = {
            "foreground_share": image.count / image.total,
            "level": image.level,
            "seed": self.config.seed,
            "attempt": attempt,
            "generator": self.generator.name,
            **view.facts,
        }
        return Row(image.key, {**view.fields, "json": encode_json(facts)})


def _decode(rows: Sequence[Row]) -> tuple[dict[str, UInt8[np.ndarray, "h w 3"]], dict[str, Row | Reject]]:
    """Pixels of the rows that can be decoded, and a reject for each of the others."""
    decoded: dict[str, UInt8[np.ndarray, "h w 3"]] = {}
    rejects: dict[str, Row | Reject] = {}
    for row in rows:
        try:
            decoded[row.key] = decode_image(row.fields)
        except DataError as error:
            rejects[row.key] = Reject(row.key, "undecodable", str(error))
    return decoded, rejects
