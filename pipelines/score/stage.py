"""Stage `score`: rounds of candidate views of every image, and the two indicators of every pair of them.

KEY.recipes.npy: float32 [r v p], the views (fields of `views.recipe.FIELDS`). KEY.scores.npy: float32 [r c s], the
pairs in the order of `pairs.order.pair_index`; the last axis is `pairs.column.score_names(num_exits)`.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import torch

from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.contract import MapStage, Run, ShardFn
from viewkit.pipelines.engine.rejects import decode_or_reject, reject
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.pairs.candidates import check_candidates
from viewkit.pipelines.pairs.column import check_pairs_name
from viewkit.pipelines.pairs.generated import NOT_IN_SUBSET, check_genview, missing_note
from viewkit.pipelines.pairs.without_view import reject_without_view
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.counted import check_counted_policy
from viewkit.pipelines.score.scorer import RowImages, Scorer
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.embeddings import ROWS_PER_BATCH, check_policy
from viewkit.pipelines.vs2fi.matching import require_same
from viewkit.shards.codecs import encode_npy
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.row import Reject, Row
from viewkit.shards.sources import ColumnSources, Sources


class ScoreStage(MapStage[ScoreConfig]):
    """column: the column to write. genview: the column of generated views.

    Memory: the images of two batches (one is decoded while the other is scored) and one round of their views.

    Rejects: ``undecodable``, ``non_finite``; only with candidates "generated" ``no_generated_view`` and
    ``not_in_subset``.

    Version 3: images that `generate` was told to leave out have a reason of their own.
    """

    name = "score"
    elsewhere: ClassVar[str] = "another --column"
    version: ClassVar[int] = 3
    by_choice: ClassVar[frozenset[str]] = frozenset({NOT_IN_SUBSET})
    shown_as = "pairs"
    holds: ClassVar[Mapping[str, str]] = {
        "recipes.npy": "float32 [r v p]: r rounds of v candidate views, p numbers a recipe (docs/views.md)",
        "scores.npy": "float32 [r c s]: c = v (v - 1) / 2 pairs, (0,1), (0,2) ...; s = Semantic Consistency, "
        "Alignment Level, similarity at the top, similarities at exits 1 ... L",
    }

    def __init__(self, column: str = "pairs", genview: str = "genview") -> None:
        check_pairs_name(self.name, column)
        self.column, self.genview = column, check_genview(genview)

    @property
    def writes(self) -> str:
        return self.column

    def reads(self, config: ScoreConfig) -> tuple[str, ...]:
        generated = () if config.candidates == "original" else (self.genview,)
        return ("images", *generated, "estimator", "histograms")

    def check(self, config: ScoreConfig) -> None:
        """`ConfigError` for a policy that binds two views of a pair, where any two may become one."""
        policy = load_policy(config.policy)
        check_candidates(policy, config.num_views, config.candidates)
        policy.check_joint(config.num_views, any_specs=True)

    def inputs(self, config: ScoreConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also what the policy says. `RefusedError` where the histograms' views were sampled otherwise."""
        policy, found = load_policy(config.policy), super().inputs(config, dataset)
        check_counted_policy(self.name, dataset, policy)
        return {**found, "policy": digest(policy.to_dict())}

    def sources(self, config: ScoreConfig, dataset: Dataset) -> Sources:
        if config.candidates == "original":
            return ColumnSources(dataset, ("images",))
        rows, present = dataset.column("images").num_rows, dataset.column(self.genview).num_rows
        notes = missing_note(self.name, rows, present, self.genview, config.candidates)
        return ColumnSources(dataset, ("images", self.genview), notes)

    def prepare(self, config: ScoreConfig, run: Run) -> ShardFn:
        """`RefusedError` when estimator, histograms and policy do not match."""
        artifact = run.dataset.artifact("estimator")
        estimator = Estimator.load(artifact, run.device, config.precision)
        histograms = Histograms.load(run.dataset.artifact("histograms"))
        policy = load_policy(config.policy)
        check_policy(self.name, estimator.side_px, policy, config.side_px)
        check_histograms(self.name, estimator, artifact.digest, histograms)
        scorer = Scorer(estimator, histograms, policy.with_side(estimator.side_px), config, run.stage)
        genview = None if config.candidates == "original" else run.dataset.column(self.genview)

        def decode(rows: Sequence[Row]) -> list[RowImages | Reject]:
            return [decode_row(row, genview, config.candidates == "generated", run.device) for row in rows]

        def score(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            with ThreadPoolExecutor(1) as thread:
                pending = None
                for batch in batches(rows, ROWS_PER_BATCH):
                    following = thread.submit(decode, batch)
                    if pending is not None:
                        yield from score_batch(scorer, pending.result())
                    pending = following
                if pending is not None:
                    yield from score_batch(scorer, pending.result())

        return score


def check_histograms(stage: str, estimator: Estimator, estimator_digest: str, histograms: Histograms) -> None:
    """`RefusedError` naming what differs, unless the histograms were counted with this very estimator and precision."""
    ours = {
        "digest": estimator_digest,
        "tau": estimator.tau,
        "num_exits": estimator.num_exits,
        "precision": estimator.precision,
    }
    theirs = {
        "digest": histograms.estimator,
        "tau": histograms.tau,
        "num_exits": histograms.num_exits,
        "precision": histograms.precision,
    }
    remedy = "delete the histograms and rerun 'viewkit histograms', with the same --precision"
    require_same(stage, "the estimator", ours, "the one the histograms were counted with", theirs, remedy)
    histograms.check_counts(f"{stage}: histograms")


def decode_row(row: Row, genview: Column | None, needs_generated: bool, device: str) -> RowImages | Reject:
    """The row's images on the device, or why it cannot be scored. genview: the column of its generated view."""
    generated = None if genview is None else row.joined[genview.name]
    if needs_generated and genview is not None and generated is None:
        return reject_without_view(row.key, genview)
    images = []
    for fields in [row.fields] if generated is None else [row.fields, generated]:
        image = decode_or_reject(row.key, fields)
        if isinstance(image, Reject):
            return image
        images.append(torch.from_numpy(image).to(device))
    return RowImages(row.key, *images)


def score_batch(scorer: Scorer, batch: Sequence[RowImages | Reject]) -> Iterator[Row | Reject]:
    """A row or a reject for every item of the batch, in its order."""
    decoded = [row for row in batch if isinstance(row, RowImages)]
    scored = iter(zip(*scorer.score(decoded), strict=True)) if decoded else iter(())
    for row in batch:
        if isinstance(row, Reject):
            yield row
            continue
        recipes, scores = next(scored)
        if np.isnan(scores).any():
            yield reject(row.key, "non_finite", "the estimator gave NaN for a view of this image")
            continue
        yield Row(row.key, {"recipes.npy": encode_npy(recipes), "scores.npy": encode_npy(scores)})
