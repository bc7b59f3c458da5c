"""Stage `rescore`: new indicators from the similarities that a pairs column keeps, without images or an estimator.

For another gamma, or for histograms counted anew (other bins, N, priors or images) with the same estimator. Recipes,
similarities and rejects are copied; the result is a column of its own, because a column has one identity.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.contract import MapStage, Run, ShardFn
from viewkit.pipelines.pairs.column import SIMILARITIES, check_pairs_name, num_exits_of, require_scores
from viewkit.pipelines.pairs.generated import NOT_IN_SUBSET
from viewkit.pipelines.score.config import RescoreConfig
from viewkit.pipelines.score.counted import check_counted_like
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.matching import require_same
from viewkit.pipelines.vs2fi.scores import score_pairs
from viewkit.shards.codecs import decode_npy, encode_npy
from viewkit.shards.commands import command_for
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.identity import Identity
from viewkit.shards.row import Reject, Row
from viewkit.shards.sources import InputsOf, Sources

ROWS_AT_ONCE = 256


class RescoreStage(MapStage[RescoreConfig]):
    """pairs: the pairs column to read, the source. column: the one to write.

    What is written stands on the source's similarities and its inputs, not on the histograms that it was scored with.

    Rejects: the source's, with its reasons.

    Version 2: rows that the source rejected are rejected here, too; they were missing.
    """

    name = "rescore"
    version: ClassVar[int] = 2
    by_choice: ClassVar[frozenset[str]] = frozenset({NOT_IN_SUBSET})
    elsewhere: ClassVar[str] = "another --column"
    shown_as = "pairs_rescored"
    holds: ClassVar[Mapping[str, str]] = {
        "recipes.npy": "as in `pairs`; rows that it rejected are rejected here, too",
        "scores.npy": "as in `pairs`, with Semantic Consistency and Alignment Level read off the similarities again",
    }
    uses_torch: ClassVar[bool] = False

    def __init__(self, pairs: str = "pairs", column: str = "pairs_rescored") -> None:
        check_pairs_name(self.name, column)
        if not pairs or Path(pairs).name != pairs:
            raise ConfigError(f"rescore: pairs is '{pairs}'; it must be the name of a column of pairs")
        if pairs == column:
            raise ConfigError(f"rescore: pairs and column are both '{pairs}'; write to another column")
        self.source, self.column = pairs, column

    @property
    def writes(self) -> str:
        return self.column

    def reads(self, config: RescoreConfig) -> tuple[str, ...]:
        return (self.source, "histograms")

    def sources(self, config: RescoreConfig, dataset: Dataset) -> Sources:
        return InputsOf(dataset.column(self.source))

    def grows(self, config: RescoreConfig, dataset: Dataset, found: Identity, wanted: Identity) -> bool:
        """Like any stage's, where the input "similarities" is the source."""

        def named(identity: Identity) -> Identity:
            inputs = dict(identity.inputs)
            if "similarities" in inputs:
                inputs[self.source] = inputs.pop("similarities")
            return replace(identity, inputs=inputs)

        return super().grows(config, dataset, named(found), named(wanted))

    def inputs(self, config: RescoreConfig, dataset: Dataset) -> Mapping[str, str]:
        """The histograms that are there now, the source's content as "similarities", and what that was made from.

        `DataError` when the source was made from another estimator or other images than are there now; `RefusedError`
        when the histograms were counted on views of another policy.
        """
        if not dataset.is_column(self.source):
            return super().inputs(config, dataset)  # says what is missing
        require_scores(dataset.column(self.source))
        dataset.require_grown(self.source, self.name)
        digests = {"similarities": dataset.column(self.source).digest, "precision": precision_of(dataset, self.source)}
        for name, wanted in dataset.column(self.source).identity.inputs.items():
            if name in ("histograms", *digests):
                continue
            there = dataset.is_column(name) or dataset.is_artifact(name)
            if there and dataset.input_digest(name, for_stage=self.name) != wanted:
                command = command_for(self.source, dataset.column(self.source).identity.stage)
                raise DataError(
                    f"{dataset.path / self.source}: it was made from another '{name}' than the one that is there now; "
                    f"delete it and rerun '{command}', or bring the old '{name}' back"
                )
            digests[name] = wanted
        digests["histograms"] = dataset.input_digest("histograms", for_stage=self.name)
        check_counted_like(self.name, dataset, self.source)
        return digests

    def prepare(self, config: RescoreConfig, run: Run) -> ShardFn:
        """`RefusedError` when the histograms were counted with another estimator or in another precision than the
        similarities, even where the estimators are no longer there."""
        histograms = Histograms.load(run.dataset.artifact("histograms"))
        ours = {
            "estimator": run.dataset.column(self.source).identity.inputs.get("estimator"),
            "precision": precision_of(run.dataset, self.source),
        }
        theirs = {"estimator": histograms.estimator, "precision": histograms.precision}
        remedy = "rerun 'viewkit histograms' with the column's estimator and --precision, or score the pairs again"
        require_same(self.name, f"column '{self.source}'", ours, "the histograms", theirs, remedy)
        histograms.check_counts(f"{self.name}: histograms")

        def rescore_rows(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            for batch in batches(rows, ROWS_AT_ONCE):
                stored = np.stack([similarities(row, histograms.num_exits) for row in batch])
                scores = score_pairs(stored, histograms, config.gamma)
                for row, row_scores in zip(batch, scores, strict=True):
                    yield Row(row.key, {**row.fields, "scores.npy": encode_npy(row_scores)})

        return rescore_rows


def precision_of(dataset: Dataset, source: str) -> str:
    """Precision of the forward passes that gave the column's similarities."""
    identity = dataset.column(source).identity
    return str(identity.config.get("precision", identity.inputs.get("precision")))


def similarities(row: Row, num_exits: int) -> np.ndarray:
    """The similarities [r c 1 + L] of a pairs row. `DataError` when it has another number of exits."""
    scores = decode_npy(row.fields["scores.npy"])
    found = num_exits_of(scores)
    if found != num_exits:
        raise DataError(
            f"rescore: row {row.key} has {found} exits and the histograms have {num_exits}; score the pairs again"
        )
    return scores[..., SIMILARITIES:]
