"""Stage `audit`: what the indicators of stored pairs filter, and whether it is what they should."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from viewkit.pipelines.audit.classifier import ClassifierFiles
from viewkit.pipelines.audit.config import AuditConfig
from viewkit.pipelines.audit.findings import Findings, find
from viewkit.pipelines.audit.galleries import draw_gallery, pick_pairs
from viewkit.pipelines.audit.grid import selected_cells
from viewkit.pipelines.audit.measures import measure_pairs
from viewkit.pipelines.audit.plots import plot_grid, plot_roc, plot_sensitivity
from viewkit.pipelines.audit.tables import audit_tables
from viewkit.pipelines.audit.truth import FALSE_POSITIVES
from viewkit.pipelines.encoders.names import encoder_reads
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder, refuse_unused_folder
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.pairs.column import ScoredPairs, read_pairs
from viewkit.pipelines.pairs.generated import generated_column
from viewkit.pipelines.pairs.same_policy import interpolation_of
from viewkit.pipelines.views.policy import Interpolation
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.matching import require_same
from viewkit.shards.codecs import encode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import write_atomic

RESULT = "audit.json"
GRID, SENSITIVITY, ROC = "grid.png", "sensitivity.png", "roc.png"
CONSISTENCY_GALLERY, LEVEL_GALLERY = "gallery_consistency.png", "gallery_level.png"
PICTURES = (GRID, SENSITIVITY, ROC, CONSISTENCY_GALLERY, LEVEL_GALLERY)


class AuditStage(FitStage[AuditConfig]):
    """column: the pairs to measure, e.g. ``pairs_rescored``. classifier: a folder or file of a timm classifier.

    weights, encoder_weights: files of the encoder, as `open_encoder` has them.

    Memory: the indicators of the sampled rows, and one batch of images with one round of their views.
    """

    name: ClassVar[str] = "audit"
    shown_as: ClassVar[str] = "audit"
    holds: ClassVar[Mapping[str, str]] = {
        "audit.json": "all numbers: shares filtered, grid, correlations, sensitivity, ROC areas, selections, tables",
        "*.png": "heat maps of the grid, sensitivity, ROC curves, and galleries of pairs by range",
    }
    writes = "audit"
    logs: ClassVar[tuple[str, ...]] = ("metrics.jsonl", *PICTURES)
    replaces: ClassVar[bool] = True
    version = 4

    def __init__(
        self,
        column: str = "pairs",
        classifier: Path | None = None,
        weights: Path | None = None,
        encoder_weights: Path | None = None,
    ) -> None:
        if not column or Path(column).name != column:
            raise ConfigError(f"audit: column is '{column}'; it must be the name of a column of pairs")
        self.column, self.classifier = column, classifier
        self.weights, self.encoder_weights = weights, encoder_weights

    def reads(self, config: AuditConfig) -> tuple[str, ...]:
        return ("images", self.column, "histograms", *encoder_reads(config.encoder))

    def check(self, config: AuditConfig) -> None:
        refuse_unused_folder(config.encoder, self.weights)

    def inputs(self, config: AuditConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also the generated images that pairs were cropped from, and the files of encoder and classifier."""
        digests = {
            **super().inputs(config, dataset),
            **encoder_inputs(config.encoder, self.weights, self.encoder_weights),
        }
        if (genview := generated_of(dataset, self.column)) is not None:
            digests[genview] = dataset.input_digest(genview, for_stage=self.name)
        if self.classifier is None and config.classifier_arch is not None:
            raise ConfigError(
                f"audit: classifier_arch is '{config.classifier_arch}' and there is no classifier; add --classifier"
            )
        if self.classifier is not None:
            digests.update(ClassifierFiles(self.classifier, config.classifier_arch).digests())
        return digests

    def fit(self, config: AuditConfig, run: Run) -> Mapping[str, Any]:
        dataset = run.dataset
        images, pairs = dataset.column("images"), dataset.column(self.column)
        gamma = gamma_of(pairs)
        genview = generated_of(dataset, self.column)
        generated = None if genview is None else dataset.column(genview)
        histograms = Histograms.load(dataset.artifact("histograms"))
        sample = read_pairs(pairs, config.images, config.rounds)
        made_with = pairs.identity.inputs.get("estimator", histograms.estimator)
        ours = {"estimator": made_with, "num_exits": sample.num_exits}
        theirs = {"estimator": histograms.estimator, "num_exits": histograms.num_exits}
        require_same(self.name, f"column '{self.column}'", ours, "the histograms", theirs, "score the pairs again")
        if config.k_al is not None and config.k_al > sample.num_exits + 1:
            raise ConfigError(
                f"audit: k_al is {config.k_al:g}, and the levels of column '{self.column}' end at "
                f"{sample.num_exits + 1}; give one of them or leave it out"
            )
        classifier = None
        if self.classifier is not None:
            classifier = ClassifierFiles(self.classifier, config.classifier_arch).load(run.device)
        encoder = open_encoder(
            config.encoder,
            dataset,
            weights=self.weights,
            encoder_weights=self.encoder_weights,
            device=run.device,
        )
        run.progress.start(self.name, total=len(sample.keys), unit="images")
        measures = measure_pairs(
            sample,
            images,
            generated,
            encoder=encoder,
            classifier=classifier,
            side_px=config.side_px or sample.side_px,
            visible_share=config.visible_share,
            device=run.device,
            progress=run.progress,
            interpolation=interpolation_of(pairs.identity),
        )
        findings = find(config, sample, measures, histograms, gamma, config.encoder)
        self._plots(config, run, findings)
        self._galleries(config, run, sample, findings, images, generated, interpolation_of(pairs.identity))
        numbers = {"column": self.column, "encoder": config.encoder, **findings.numbers()}
        tables = [asdict(table) for table in audit_tables(numbers)]
        write_atomic(run.folder / RESULT, encode_json({**numbers, "tables": tables}))
        return shown_numbers(numbers)

    def _plots(self, config: AuditConfig, run: Run, findings: Findings) -> None:
        panels = [
            ("pairs", findings.grid["count"]),
            ("low-level: distance of colour histograms", findings.grid["colour"]),
            (f"high-level: distance of {findings.chosen}", findings.grid[findings.chosen]),
        ]
        selected = selected_cells(findings.consistency, findings.level, findings.k_sc, findings.k_al)
        plot_grid(run.folder / GRID, panels, findings.consistency, findings.level, selected)
        used = {"k_sc": findings.k_sc, "k_al": findings.k_al, "gamma": findings.gamma}
        plot_sensitivity(run.folder / SENSITIVITY, findings.sensitivity, used)
        plot_roc(run.folder / ROC, findings.questions, findings.answers)

    def _galleries(
        self,
        config: AuditConfig,
        run: Run,
        sample: ScoredPairs,
        findings: Findings,
        images: Column,
        generated: Column | None,
        interpolation: Interpolation,
    ) -> None:
        for file, name, ranges, values in (
            (CONSISTENCY_GALLERY, "Semantic Consistency", findings.consistency, sample.consistency),
            (LEVEL_GALLERY, "Alignment Level", findings.level, sample.level),
        ):
            place = ranges.place(values)
            parts = [
                (label, pick_pairs(place, part, config.gallery, run.generator(file, part)))
                for part, label in enumerate(ranges.labels)
            ]
            title = f"Random pairs by {name}"
            draw_gallery(run.folder / file, title, sample, parts, images, generated, config.tile_px, interpolation)


def gamma_of(pairs: Column) -> float:
    """What the column's Alignment Levels were read with. `DataError` for a column of something else."""
    gamma = pairs.identity.config.get("gamma")
    if not isinstance(gamma, int | float):
        raise DataError(
            f"audit: column '{pairs.name}' was written by '{pairs.identity.stage}' and has no gamma; "
            "name a column that 'viewkit score' or 'viewkit rescore' wrote"
        )
    return float(gamma)


def generated_of(dataset: Dataset, column: str) -> str | None:
    """The column of generated images that the pairs were cropped from; None where they were not."""
    return generated_column(dataset.column(column).identity.inputs) if dataset.is_column(column) else None


def shown_numbers(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the command prints at its end."""
    shares = found["filtered"]["all"]
    return {
        "images": found["images"],
        "pairs": found["pairs"],
        **{name: shares[name] for name in ("below_k_sc", "below_k_al", "below_both", "surviving", "relaxed")},
        "high_level": found["high_level"]["chosen"],
        "level_and_colour": found["correlation"]["colour"]["level"],
        "consistency_and_high_level": found["correlation"][found["high_level"]["chosen"]]["consistency"],
        **{f"false_positives_{name}": share for name, share in false_positives(found["selections"])},
        **{f"roc_area_{each['name']}": each["rules"][0]["roc_area"] for each in found["ground_truth"]},
    }


def false_positives(selections: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float | None]]:
    """(selection, share of the pairs it takes without a shared countable object), where that is known."""
    for each in selections:
        if FALSE_POSITIVES in each["bad"]:
            yield each["name"], each["bad"][FALSE_POSITIVES]["share"]
