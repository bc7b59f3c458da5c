"""Stage `generate`: foreground share, noise level and generated views of every image."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from viewkit.pipelines.encoders.names import encoder_reads, resolve_precision
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder
from viewkit.pipelines.engine.contract import MapStage, Run, ShardFn
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.foreground.share import LEVELS
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.interface import Setup, generator_class
from viewkit.pipelines.generate.levels import LevelTable, calibrated_levels
from viewkit.pipelines.generate.maker import ViewMaker
from viewkit.pipelines.generate.micro_batches import MicroBatches
from viewkit.pipelines.generate.sides import natural_px
from viewkit.pipelines.pairs.generated import NOT_IN_SUBSET, check_genview
from viewkit.pipelines.weights.cards import GENERATORS
from viewkit.pipelines.weights.folder import sha256_of
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

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
