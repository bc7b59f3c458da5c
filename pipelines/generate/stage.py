"""Stage `generate`: foreground share, noise level and generated views of every image."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import UInt8

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.names import encoder_reads, resolve_precision
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder
from viewkit.pipelines.engine.batches import batches_of, padded
from viewkit.pipelines.engine.contract import MapStage, Run, ShardFn
from viewkit.pipelines.engine.rejects import decode_or_reject, reject
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.foreground.share import LEVELS, adaptive_level
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.interface import Failed, Generated, Generator, Setup, generator_class
from viewkit.pipelines.generate.levels import MEASURED, LevelTable, calibrated_levels, sample_level
from viewkit.pipelines.generate.micro_batches import MicroBatches
from viewkit.pipelines.generate.sides import natural_px
from viewkit.pipelines.pairs.generated import NOT_IN_SUBSET, check_genview
from viewkit.pipelines.weights.cards import GENERATORS
from viewkit.pipelines.weights.folder import sha256_of
from viewkit.shards.codecs import encode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Reject, Row
from viewkit.shards.view_fields import fields_of_views

BATCH = 16
"""Rows per forward pass: a GPU is full with 8 to 16 at 768 px."""


class GenerateStage(MapStage[GenerateConfig]):
    """Needs the artifact that `ForegroundStage` writes with ``config.foreground()``.

    weights: the generator's folder, or its hub id and commit. levels: CSV file of the strategy ``table``.
    encoder_weights: as `ForegroundStage` has it. batch_size: rows per forward pass; every batch is filled up to it.
    compile: the networks go through torch.compile, which takes minutes and then saves time on every image. column: the
    column to write, `genview` or `genview_NAME`. only: text file with the keys of the images that get views, a key a
    line.

    Version 3: what is sampled again is sampled alone, not in a batch.
    """

    name = "generate"
    elsewhere: ClassVar[str] = "another --column"
    version = 3
    by_choice: ClassVar[frozenset[str]] = frozenset({NOT_IN_SUBSET})
    shown_as = "genview"
    holds: ClassVar[Mapping[str, str]] = {
        "jpg, png or webp": "the generated view; of several, the others are 1.jpg, 2.jpg ...",
        "json": "foreground_share, level (0-999), seed, attempt, generator; for retrieval also neighbour and cosine; "
        "with several views also views, a list of each view's own facts",
    }

    def __init__(
        self,
        weights: Path | None = None,
        batch_size: int | None = None,
        levels: Path | None = None,
        encoder_weights: Path | None = None,
        compile: bool | None = None,
        column: str = "genview",
        only: Path | None = None,
    ) -> None:
        if batch_size is not None and not 1 <= batch_size <= 4096:
            raise ConfigError(f"--batch-size is {batch_size}; it must lie in 1 ... 4096")
        self.weights, self.levels, self.encoder_weights = weights, levels, encoder_weights
        self.batch_size = batch_size or BATCH
        self.compiled = bool(compile)
        self.column, self.only = check_genview(column), only

    @property
    def writes(self) -> str:
        return self.column

    def on_device(self, config: GenerateConfig, device: str) -> GenerateConfig:
        return replace(config, precision=resolve_precision(config.precision, device))

    def reads(self, config: GenerateConfig) -> tuple[str, ...]:
        weights = GENERATORS[config.generator].reads
        levels = ("generator",) if config.strategy == "calibrated" else ()
        return tuple(dict.fromkeys(("images", "foreground", *encoder_reads(config.encoder_name), *weights, *levels)))

    def check(self, config: GenerateConfig) -> None:
        """Also reads the table of levels and the list of keys, and looks for the generator's weights."""
        self._table(config)
        if self.only is not None:
            if config.subset is not None:
                raise ConfigError(f"subset is {config.subset} and --only is {self.only}; give one of them")
            read_keys(self.only)
        generator_class(config.generator).inputs(config, self.weights)

    def inputs(self, config: GenerateConfig, dataset: Dataset) -> Mapping[str, str]:
        """Asks for the foreground's sign, too, where levels depend on it: an open one stops before any work."""
        table = self._table(config)
        inputs = super().inputs(config, dataset)
        self._foreground(config, dataset, table)
        return {
            **inputs,
            **({} if self.only is None else {"only": sha256_of(self.only)}),
            **encoder_inputs(config.encoder_name, self.weights, self.encoder_weights),
            **generator_class(config.generator).inputs(config, self.weights),
            **({} if table is None else {"levels": table.digest}),
        }

    def settings(self, config: GenerateConfig) -> dict[str, Any]:
        return {name: value for name, value in super().settings(config.decided()).items() if name != "speed"}

    def keeps_rows(self, config: GenerateConfig) -> bool:
        return GENERATORS[config.generator].expensive

    def prepare(self, config: GenerateConfig, run: Run) -> ShardFn:
        config = self.on_device(config, run.device)
        images, table = run.dataset.column("images"), self._table(config)
        chosen = self._chosen(config, images)
        if table is not None:
            table.check_keys(list(images.keys()) if chosen is None else sorted(chosen))
        if config.output_px is None:
            config = replace(config, output_px=natural_px(images))
        foreground = self._foreground(config, run.dataset, table)
        encoder = open_encoder(
            config.encoder_name,
            run.dataset,
            weights=self.weights,
            encoder_weights=self.encoder_weights,
            device=run.device,
            precision=resolve_precision(config.encoder_precision, run.device),
        )
        foreground.check_encoder(encoder.fingerprint())
        setup = Setup(config, run, encoder, foreground, self.weights, self.compiled)
        generator = generator_class(config.generator).create(setup)
        micro = MicroBatches(self.batch_size, "generate", run.progress.message)
        steps = calibrated_levels(run.dataset) if config.strategy == "calibrated" else LEVELS
        return ViewMaker(
            config, run, encoder, foreground, generator, table, self.batch_size, micro, chosen, steps
        ).views

    def _foreground(self, config: GenerateConfig, dataset: Dataset, table: LevelTable | None) -> Foreground:
        """With the sign that is asked for; `DataError` where it is open and levels depend on it."""
        foreground = Foreground.read(dataset.artifact("foreground"))
        by_share = config.strategy in ("adaptive", "calibrated") or (table is not None and not table.by_key)
        if by_share or config.sign in ("+", "-") or foreground.signs[config.sign] in ("+", "-"):
            return foreground.with_sign(config.sign)
        return foreground

    def _chosen(self, config: GenerateConfig, images: Column) -> frozenset[str] | None:
        """Keys of the images that get views; None for all. `DataError` for a listed key that no image has."""
        if config.subset is not None:
            return frozenset(smallest(images.keys(), config.subset))
        if self.only is None:
            return None
        keys = read_keys(self.only)
        unknown = [key for key in keys if key not in images.place_of]
        if unknown:
            raise DataError(f"{self.only}: {len(unknown)} of its keys are no images (first: {unknown[0]})")
        return frozenset(keys)

    def _table(self, config: GenerateConfig) -> LevelTable | None:
        """The user's levels; `ConfigError` unless strategy and file go together."""
        if (config.strategy == "table") != (self.levels is not None):
            raise ConfigError(
                f"strategy is '{config.strategy}' and --levels is {self.levels or 'not given'}; a table of levels "
                "takes both, --strategy table --levels FILE.csv"
            )
        return None if self.levels is None else LevelTable.read(self.levels)


@dataclass(frozen=True)
class Image:
    """A decoded row with what decides its views. count: its foreground tokens, of `total`."""

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
class ViewMaker:
    """One worker's loaded models, and the work on rows. micro: batches of views that are sampled at once.

    chosen: keys of the images that get views, None for all. steps: the five levels that follow the foreground.
    """

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
        """One row or reject for each of `rows`, in order. A batch is full of rows that are chosen: those that are left
        out between them take no place in it."""
        kept = (row if self.chosen is None or row.key in self.chosen else _left_out(row.key) for row in rows)
        for batch in batches_of(kept, lambda each: isinstance(each, Row), self.batch_size):
            decoded, outcomes = _decode([row for row in batch if isinstance(row, Row)])
            outcomes |= {each.key: each for each in batch if isinstance(each, Reject)}
            outcomes |= self._generate(self._encode(decoded))
            yield from (outcomes[row.key] for row in batch)

    def _encode(self, decoded: Mapping[str, UInt8[np.ndarray, "h w 3"]]) -> list[Image | Reject]:
        """Foreground, level and embedding of up to `batch_size` images, by one forward pass of the encoder."""
        if not decoded:
            return []
        pixels = padded(list(decoded.values()), self.batch_size)
        tokens, embedding = self.encoder.encode_images(pixels)
        if self.generator.encoder is not self.encoder:
            embedding = self.generator.condition(pixels)
        finite = (tokens.isfinite().flatten(1).all(dim=1) & embedding.isfinite().all(dim=1)).tolist()
        counts, total = self.foreground.counts(tokens).tolist(), tokens.shape[1]
        return [
            Image(key, embedding[i], counts[i], total, self._level(key, counts[i], total))
            if finite[i]
            else reject(key, "non_finite", "the encoder's tokens or embedding are not finite")
            for i, key in enumerate(decoded)
        ]

    def _level(self, key: str, count: int, total: int) -> int:
        if self.table is not None:
            return self.table.level(key, count, total)
        if self.config.strategy in ("adaptive", "calibrated"):
            return adaptive_level(count, total, self.steps)
        if self.config.strategy in ("random", "spread"):
            levels = LEVELS if self.config.strategy == "random" else MEASURED
            return sample_level(self.run.generator(key, "level"), levels)
        return self.config.level

    def _generate(self, seen: Sequence[Image | Reject]) -> dict[str, Row | Reject]:
        """Views of the images. What fails is sampled again with the next attempt's seed, in the end once in fp32; an
        image of which one view fails for good is a reject."""
        outcomes: dict[str, Row | Reject] = {each.key: each for each in seen if isinstance(each, Reject)}
        images = [each for each in seen if isinstance(each, Image)]
        made: dict[tuple[str, int], tuple[Generated, Mapping[str, Any]]] = {}
        left = [PlannedView(image, number) for image in images for number in range(self.config.views_per_image)]
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
                    outcomes[view.image.key] = Reject(view.image.key, result.reason, result.detail)
                    failed.append(view)
            left = failed
        lost = {view.image.key for view in left}
        for image in images:
            if image.key not in lost:
                outcomes[image.key] = self._row(image, [made[image.key, i] for i in range(self.config.views_per_image)])
        return outcomes

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

    def _row(self, image: Image, views: Sequence[tuple[Generated, Mapping[str, Any]]]) -> Row:
        each = [{**facts, **view.facts} for view, facts in views]
        facts: dict[str, Any] = {
            **({"foreground_share": image.count / image.total} if self._knows_sign else {}),
            "level": image.level,
            "seed": self.config.seed,
            "generator": self.generator.name,
            **each[0],
            **({"views": each} if len(each) > 1 else {}),
        }
        fields = fields_of_views([view.fields for view, _ in views])
        return Row(image.key, {**fields, "json": encode_json(facts)})


def read_keys(path: Path) -> list[str]:
    """The keys that a text file lists, one a line; `DataError` for a file that holds none or cannot be read."""
    try:
        keys = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a list of keys ({error}); it must be text, a key a line") from error
    keys = [key.strip() for key in keys if key.strip()]
    if not keys:
        raise DataError(f"{path}: lists no key; write one a line")
    return keys


def _left_out(key: str) -> Reject:
    return reject(key, NOT_IN_SUBSET, "no view was asked for")


def _decode(rows: Sequence[Row]) -> tuple[dict[str, UInt8[np.ndarray, "h w 3"]], dict[str, Row | Reject]]:
    """Pixels of the rows that can be decoded, and a reject for each of the others."""
    decoded: dict[str, UInt8[np.ndarray, "h w 3"]] = {}
    rejects: dict[str, Row | Reject] = {}
    for row in rows:
        pixels = decode_or_reject(row.key, row.fields)
        if isinstance(pixels, Reject):
            rejects[row.key] = pixels
        else:
            decoded[row.key] = pixels
    return decoded, rejects
