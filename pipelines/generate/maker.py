"""The way of a row through a worker's models: decoded, encoded, noised, sampled, checked, stored."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.engine.batches import batches_of, padded
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.rejects import decode_or_reject, reject
from viewkit.pipelines.engine.threads import made_ahead
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.foreground.share import LEVELS, adaptive_level
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.interface import Failed, Generated, Generator
from viewkit.pipelines.generate.levels import MEASURED, LevelTable, sample_level
from viewkit.pipelines.generate.micro_batches import MicroBatches
from viewkit.pipelines.pairs.generated import NOT_IN_SUBSET
from viewkit.shards.codecs import encode_json
from viewkit.shards.row import Reject, Row
from viewkit.shards.view_fields import fields_of_views


@dataclass(frozen=True)
class Decoded:
    """An image that is to get views."""

    key: str
    pixels: UInt8[np.ndarray, "_h _w 3"]


@dataclass(frozen=True)
class Image:
    """A row with what decides its views. count: its foreground tokens, of `total`."""

    key: str
    embedding: torch.Tensor
    count: int
    total: int
    level: int


@dataclass(frozen=True)
class PlannedView:
    """View `number` of an image, still to be made."""

    image: Image
    number: int


@dataclass(frozen=True)
class Finished:
    """An image and all its views, each with what is noted of its making. Their pictures may still be being encoded."""

    image: Image
    views: Sequence[tuple[Generated, Mapping[str, Any]]]


@dataclass(frozen=True)
class ViewMaker:
    """micro: batches of views that are sampled at once. chosen: keys of the images that get views, None for all.
    steps: the five levels that follow the foreground."""

    config: GenerateConfig
    run: Run
    encoder: Encoder
    foreground: Foreground
    generator: Generator
    table: LevelTable | None
    batch_size: int
    micro: MicroBatches
    chosen: frozenset[str] | None = None
    steps: Sequence[int] = LEVELS

    def views(self, rows: Iterator[Row]) -> Iterator[Row | Reject]:
        """One row or reject for each of `rows`, in order.

        Nothing waits in series: while a batch is sampled, a thread decodes the next; while that one passes through the
        encoder, threads encode the pictures of the one before. They are stored before the next are sampled, so that a
        kill loses one batch at most.
        """
        before: Sequence[Finished | Reject] = []
        with closing(made_ahead(self._decoded(rows))) as batches:
            for batch in batches:
                seen = self._encode(batch)
                yield from map(self._outcome, before)
                before = self._generate(seen)
        yield from map(self._outcome, before)

    def _decoded(self, rows: Iterator[Row]) -> Iterator[list[Decoded | Reject]]:
        """Batches full of rows that are chosen: those that are left out between them take no place in one."""
        kept = (row if self.chosen is None or row.key in self.chosen else _left_out(row.key) for row in rows)
        for batch in batches_of(kept, lambda each: isinstance(each, Row), self.batch_size):
            yield [each if isinstance(each, Reject) else _decode(each) for each in batch]

    def _encode(self, batch: Sequence[Decoded | Reject]) -> list[Image | Reject]:
        """Foreground, level and embedding of up to `batch_size` images, by one forward pass of the encoder."""
        decoded = [each for each in batch if isinstance(each, Decoded)]
        if not decoded:
            return [each for each in batch if isinstance(each, Reject)]
        pixels = padded([each.pixels for each in decoded], self.batch_size)
        tokens, embedding = self.encoder.encode_images(pixels)
        if self.generator.encoder is not self.encoder:
            embedding = self.generator.condition(pixels)
        finite = (tokens.isfinite().flatten(1).all(dim=1) & embedding.isfinite().all(dim=1)).tolist()
        counts, total = self.foreground.counts(tokens).tolist(), tokens.shape[1]
        seen = {
            each.key: Image(each.key, embedding[i], counts[i], total, self._level(each.key, counts[i], total))
            if finite[i]
            else reject(each.key, "non_finite", "the encoder's tokens or embedding are not finite")
            for i, each in enumerate(decoded)
        }
        return [each if isinstance(each, Reject) else seen[each.key] for each in batch]

    def _level(self, key: str, count: int, total: int) -> int:
        if self.table is not None:
            return self.table.level(key, count, total)
        if self.config.strategy in ("adaptive", "calibrated"):
            return adaptive_level(count, total, self.steps)
        if self.config.strategy in ("random", "spread"):
            levels = LEVELS if self.config.strategy == "random" else MEASURED
            return sample_level(self.run.generator(key, "level"), levels)
        return self.config.level

    def _generate(self, seen: Sequence[Image | Reject]) -> list[Finished | Reject]:
        """Views of the images. What fails is sampled again with the next attempt's seed, in the end once in fp32; an
        image of which one view fails for good is a reject."""
        made: dict[tuple[str, int], tuple[Generated, Mapping[str, Any]]] = {}
        failures: dict[str, Reject] = {}
        numbers = range(self.config.views_per_image)
        left = [PlannedView(image, number) for image in seen if isinstance(image, Image) for number in numbers]
        for attempt in range(self.config.attempts + 1):
            if not left:
                break
            generator = self.generator if attempt < self.config.attempts else self.generator.in_fp32()
            if generator is None:
                break
            facts = {"attempt": attempt} | ({} if generator is self.generator else {"precision": "fp32"})
            failed = []
            for view, result in zip(left, self._sample(generator, left, attempt), strict=True):
                if isinstance(result, Generated):
                    made[view.image.key, view.number] = result, facts | self._size()
                else:
                    failures[view.image.key] = Reject(view.image.key, result.reason, result.detail)
                    failed.append(view)
            left = failed
        lost = {view.image.key for view in left}

        def finished(image: Image) -> Finished | Reject:
            if image.key in lost:
                return failures[image.key]
            return Finished(image, [made[image.key, number] for number in numbers])

        return [finished(each) if isinstance(each, Image) else each for each in seen]

    def _sample(self, generator: Generator, planned: Sequence[PlannedView], attempt: int) -> list[Generated | Failed]:
        def sample(rows: list[int]) -> list[Generated | Failed]:
            batch = [planned[row] for row in rows]
            streams = [self.run.generator(*self._names(view, attempt)) for view in batch]
            embedding = torch.stack([view.image.embedding for view in batch])
            noise = np.stack([s.standard_normal(embedding.shape[1], dtype=np.float32) for s in streams])
            latents = np.stack([s.standard_normal(generator.latent_shape or (0,), dtype=np.float32) for s in streams])
            level = torch.tensor([view.image.level for view in batch])
            conditioning = generator.perturb(embedding, level, torch.from_numpy(noise))
            return generator.sample(conditioning, torch.from_numpy(latents), [view.image.key for view in batch])

        return self.micro.run(len(planned), sample, alone=attempt > 0)

    @staticmethod
    def _names(view: PlannedView, attempt: int) -> tuple[object, ...]:
        """What the noise of a view depends on, beside the seed."""
        first = (view.image.key, "view", attempt)
        return (*first, view.number) if view.number else first

    @property
    def _knows_sign(self) -> bool:
        """Whether the foreground has a sign; an open one stays so where levels do not depend on it."""
        return self.config.sign in ("+", "-") or self.foreground.signs[self.config.sign] in ("+", "-")

    def _size(self) -> dict[str, int]:
        """Marks what was made by smaller batches than asked for: it may differ in its last bits."""
        return {"batch_size": self.micro.size} if self.micro.shrunk else {}

    def _outcome(self, made: Finished | Reject) -> Row | Reject:
        """What is stored."""
        if isinstance(made, Reject):
            return made
        each = [{**facts, **view.facts} for view, facts in made.views]
        facts: dict[str, Any] = {
            **({"foreground_share": made.image.count / made.image.total} if self._knows_sign else {}),
            "level": made.image.level,
            "seed": self.config.seed,
            "generator": self.generator.name,
            **each[0],
            **({"views": each} if len(each) > 1 else {}),
        }
        fields = fields_of_views([view.fields for view, _ in made.views])
        return Row(made.image.key, {**fields, "json": encode_json(facts)})


def _left_out(key: str) -> Reject:
    return reject(key, NOT_IN_SUBSET, "no view was asked for")


def _decode(row: Row) -> Decoded | Reject:
    pixels = decode_or_reject(row.key, row.fields)
    return pixels if isinstance(pixels, Reject) else Decoded(row.key, pixels)
