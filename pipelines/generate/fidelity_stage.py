"""Stage `fidelity`: how near the views of a column are to their images."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.names import encoder_reads, resolve_precision
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder, refuse_unused_folder
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.engine.rejects import decode_or_reject
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.generate.fidelity import Fidelity, cosines, judge_of, summarise, table_lines
from viewkit.pipelines.generate.fidelity_config import FidelityConfig
from viewkit.pipelines.generate.measures import table
from viewkit.pipelines.generate.measures.judge import embed, joined, judged
from viewkit.pipelines.generate.measures.table import Judged, Real, measure_level
from viewkit.pipelines.weights.cards import GENERATORS, default_encoder
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import read_file, write_atomic
from viewkit.shards.row import Reject
from viewkit.shards.view_fields import views_of_fields

FACTS, COLUMN = "fidelity.json", "genview"
SELF_JUDGED = (
    "the views were made with the embeddings of '{0}', and '{0}' judges them: what it finds near is near to it by "
    "construction; --encoder names another judge"
)


class FidelityStage(FitStage[FidelityConfig]):
    """column: of generated views. weights, encoder_weights: as `ForegroundStage` has them. Where an image has several
    views their cosines are averaged."""

    name = "fidelity"
    version = 3
    shown_as = "fidelity"
    holds: ClassVar[Mapping[str, str]] = {
        "fidelity.json": "cosine of views and images: mean, standard error, chance; by level share and cosine; "
        "table: fidelity, diversity, Fréchet distance, copies and colour error of every level",
    }

    def __init__(
        self,
        weights: Path | None = None,
        encoder_weights: Path | None = None,
        column: str = COLUMN,
        batch_size: int = 16,
    ) -> None:
        if not column or "/" in column:
            raise ConfigError(f"--column is '{column}'; it must be the name of a column of views, e.g. {COLUMN}")
        self.weights, self.encoder_weights = weights, encoder_weights
        self.column, self.batch_size = column, batch_size

    @property
    def writes(self) -> str:
        return "fidelity" if self.column == COLUMN else f"fidelity_{self.column}"

    def on_device(self, config: FidelityConfig, device: str) -> FidelityConfig:
        return replace(config, precision=resolve_precision(config.precision, device, config.encoder))

    def reads(self, config: FidelityConfig) -> tuple[str, ...]:
        return ("images", self.column, *encoder_reads(config.encoder))

    def check(self, config: FidelityConfig) -> None:
        refuse_unused_folder(config.encoder, self.weights)

    def inputs(self, config: FidelityConfig, dataset: Dataset) -> Mapping[str, str]:
        files = encoder_inputs(config.encoder, self.weights, self.encoder_weights)
        return {**super().inputs(config, dataset), **files}

    def fit(self, config: FidelityConfig, run: Run) -> Mapping[str, Any]:
        images, views = run.dataset.column("images"), run.dataset.column(self.column)
        keys = smallest(views.keys(), config.sample)
        if len(keys) < 2:
            raise DataError(f"fidelity: the column '{self.column}' holds {len(keys)} rows, and 2 are needed")
        encoder = open_encoder(
            config.encoder,
            run.dataset,
            weights=self.weights,
            encoder_weights=self.encoder_weights,
            device=run.device,
            precision=resolve_precision(config.precision, run.device, config.encoder),
        )
        run.progress.start(self.name, len(keys), "images")
        level: list[int] = []
        sources: list[Judged] = []
        made: list[list[Judged]] = []  # a list a batch, of the first views, the second ones ...
        for part in batches(keys, self.batch_size):
            pictures = [decode_image(images.fields(images.place_of[key])) for key in part]
            sources.append(judged(encoder, pictures, self.batch_size))
            shown, facts = zip(*(_views(views, key) for key in part), strict=True)
            made.append([judged(encoder, each, self.batch_size) for each in zip(*shown, strict=True)])
            level += [int(says["level"]) for says in facts]
            run.progress.advance(len(part))
        measured = set(keys)
        others = [key for key in smallest(images.keys(), config.known) if key not in measured]
        real = Real.of_dataset(joined(sources), self._features(encoder, images, others))
        every = [joined(each) for each in zip(*made, strict=True)]
        found, rows = _measured(real, every, np.array(level))
        maker = encoder_of(run.dataset, views)
        if maker == config.encoder:
            run.progress.message(f"{self.name}: {SELF_JUDGED.format(maker)}")
        says = {"judge": config.encoder, "made_with": maker, "independent": maker != config.encoder}
        numbers = {**_made_by(views), **says, **found.numbers(), "table": rows}
        content = json.dumps({"encoder": dict(encoder.fingerprint()), **numbers}, indent=1, sort_keys=True)
        write_atomic(run.folder / FACTS, f"{content}\n".encode())
        return numbers

    def _features(self, encoder: Encoder, images: Column, keys: Sequence[str]) -> Float64[np.ndarray, "m d"]:
        """Of those images that can be decoded, a batch in memory at a time."""
        found = [np.zeros((0, encoder.width))]
        for part in batches(keys, self.batch_size):
            decoded = [decode_or_reject(key, images.fields(images.place_of[key])) for key in part]
            pictures = [each for each in decoded if not isinstance(each, Reject)]
            found += [embed(encoder, pictures, self.batch_size)] if pictures else []
        return np.concatenate(found)


def _measured(
    real: Real, views: Sequence[Judged], level: Int64[np.ndarray, " n"]
) -> tuple[Fidelity, list[dict[str, Any]]]:
    """Mean cosines, and the table by level. Where an image has several views their cosines are averaged; for `chance`
    every image is once another one's."""
    images = real.sources.features
    cosine = np.mean([cosines(view.features, images) for view in views], axis=0)
    other = np.mean([cosines(view.features, np.roll(images, 1, axis=0)) for view in views], axis=0)
    threshold, rows = real.threshold(), []
    for each in np.unique(level):
        chosen = np.flatnonzero(level == each)
        rows.append(measure_level(int(each), [view.rows(chosen) for view in views], real, chosen, threshold).numbers())
    return summarise(cosine, other, level), rows


def _views(views: Column, key: str) -> tuple[list[UInt8[np.ndarray, "_ _ 3"]], Mapping[str, Any]]:
    """Pixels of an image's views, and its facts. `DataError` for a row that `generate` has not written."""
    fields = views.fields(views.place_of[key])
    facts = decode_json(fields["json"]) if "json" in fields else {}
    if "level" not in facts:
        raise DataError(
            f"fidelity: column '{views.name}', row {key}: is no generated view with its noise level; --column takes "
            "one that 'viewkit generate' wrote"
        )
    pictures = {name: content for name, content in fields.items() if name != "json"}
    return [decode_image(view) for view in views_of_fields(pictures)], facts


def encoder_of(dataset: Dataset, views: Column) -> str | None:
    """The encoder whose embeddings the views were made of; None where nobody knows any more."""
    made = views.identity.config
    if made.get("encoder"):
        return str(made["encoder"])
    if dataset.is_artifact("foreground") and dataset.artifact("foreground").identity.config.get("encoder"):
        return str(dataset.artifact("foreground").identity.config["encoder"])
    generator = str(made.get("generator", ""))
    return default_encoder(generator) if generator in GENERATORS else None


def _made_by(views: Column) -> dict[str, Any]:
    """Generator and strategy of a column, as its identity has them."""
    config = views.identity.config
    names = ("generator", "strategy", "level") if config.get("strategy") == "constant" else ("generator", "strategy")
    return {name: config[name] for name in names if name in config}


def summary_lines(dataset: Dataset) -> list[str]:
    """The table of all fidelities of a dataset, for the end of `viewkit fidelity`."""
    rows = []
    for name in dataset.artifacts():
        if name == "fidelity" or name.startswith("fidelity_"):
            artifact = dataset.artifact(name)
            numbers = json.loads(read_file(artifact.path(FACTS)))
            made_by = [str(numbers[each]) for each in ("generator", "strategy", "level") if each in numbers]
            rows.append((" ".join(made_by) or name, numbers))
    judges = {judge_of(numbers) for _, numbers in rows}
    judges_line = [f"judged by {', '.join(sorted(name for name, _ in judges))}"] if rows else []
    themselves = sorted(name for name, independent in judges if not independent)
    return [
        *(table_lines(rows) if rows else []),
        *judges_line,
        *(f"note: {SELF_JUDGED.format(each)}" for each in themselves),
        *(line for name, numbers in rows for line in _by_level(name, numbers)),
    ]


def _by_level(name: str, numbers: Mapping[str, Any]) -> list[str]:
    """The table of one column; what speaks against its generator where levels are spread over their whole range."""
    rows = numbers.get("table", [])
    notes = table.doubts(rows) if numbers.get("strategy") == "spread" else []
    return [f"{name}, by level:", *table.table_lines(rows), *(f"note: {each}" for each in notes)] if rows else []
