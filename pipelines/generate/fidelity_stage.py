"""Stage `fidelity`: how near the views of a column are to their images."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64, UInt8

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.names import encoder_reads, resolve_precision
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder
from viewkit.pipelines.engine.batches import batches, padded
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.generate.fidelity import cosines, judge_of, summarise, table_lines
from viewkit.pipelines.generate.fidelity_config import FidelityConfig
from viewkit.pipelines.weights.cards import GENERATORS, default_encoder
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import read_file, write_atomic
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
    version = 2
    shown_as = "fidelity"
    holds: ClassVar[Mapping[str, str]] = {
        "fidelity.json": "cosine of views and images: mean, standard error, chance; by level share and cosine",
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
        cosine, other, level = [], [], []
        first: Float64[np.ndarray, "v d"] | None = None
        previous: Float64[np.ndarray, " d"] | None = None
        for part in batches(keys, self.batch_size):
            source = self._embed(encoder, [decode_image(images.fields(images.place_of[key])) for key in part])
            shown, facts = zip(*(_views(views, key) for key in part), strict=True)
            made = self._embed(encoder, [view for each in shown for view in each])
            ends = np.cumsum([len(each) for each in shown])[:-1]
            for image, own, says in zip(source, np.split(made, ends), facts, strict=True):
                cosine.append(_mean_cosine(own, image))
                level.append(int(says["level"]))
                if previous is not None:
                    other.append(_mean_cosine(own, previous))
                first, previous = own if first is None else first, image
            run.progress.advance(len(part))
        assert first is not None and previous is not None
        other.append(_mean_cosine(first, previous))  # every image is once another one's
        found = summarise(np.array(cosine), np.array(other), np.array(level))
        maker = encoder_of(run.dataset, views)
        if maker == config.encoder:
            run.progress.message(f"{self.name}: {SELF_JUDGED.format(maker)}")
        judged = {"judge": config.encoder, "made_with": maker, "independent": maker != config.encoder}
        numbers = {**_made_by(views), **judged, **found.numbers()}
        content = json.dumps({"encoder": dict(encoder.fingerprint()), **numbers}, indent=1, sort_keys=True)
        write_atomic(run.folder / FACTS, f"{content}\n".encode())
        return numbers

    def _embed(self, encoder: Encoder, images: Sequence[UInt8[np.ndarray, "_ _ 3"]]) -> Float64[np.ndarray, "n d"]:
        """Embeddings of a few images, from full batches."""
        parts = batches(padded(images, self.batch_size), self.batch_size)
        found = [encoder.encode_images(part)[1].double().cpu().numpy() for part in parts]
        return np.concatenate(found)[: len(images)]


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


def _mean_cosine(made: Float64[np.ndarray, "v d"], embedding: Float64[np.ndarray, " d"]) -> float:
    return float(cosines(made, np.broadcast_to(embedding, made.shape)).mean())


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
    judged = [f"judged by {', '.join(sorted(name for name, _ in judges))}"] if rows else []
    themselves = sorted(name for name, independent in judges if not independent)
    return [
        *(table_lines(rows) if rows else []),
        *judged,
        *(f"note: {SELF_JUDGED.format(each)}" for each in themselves),
    ]
