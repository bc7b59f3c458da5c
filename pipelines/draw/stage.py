"""Stage `draw`: rounds of views of every image as recipes alone; nothing is rendered, encoded or scored.

KEY.recipes.npy: float32 [r v p], as `score` writes it. Only the images' headers are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from viewkit.pipelines.draw.config import DrawConfig
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.contract import MapStage, Run, ShardFn
from viewkit.pipelines.engine.rejects import reject
from viewkit.pipelines.pairs.candidates import RowSizes, Size, check_candidates, sample_round
from viewkit.pipelines.pairs.column import check_pairs_name
from viewkit.pipelines.pairs.generated import NOT_IN_SUBSET, check_genview, missing_note
from viewkit.pipelines.pairs.without_view import reject_without_view
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import Policy
from viewkit.shards.codecs import encode_npy, image_field, image_size
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import DataError
from viewkit.shards.row import Reject, Row
from viewkit.shards.sources import ColumnSources, Sources

ROWS_AT_ONCE = 64


class DrawStage(MapStage[DrawConfig]):
    """column: the column to write. genview: the column of generated views.

    Memory: the recipes of `ROWS_AT_ONCE` rows. Rejects: ``undecodable``; only with candidates "generated"
    ``no_generated_view`` and ``not_in_subset``.

    Version 2: images that `generate` was told to leave out have a reason of their own.
    """

    name = "draw"
    elsewhere: ClassVar[str] = "another --column"
    version = 2
    by_choice: ClassVar[frozenset[str]] = frozenset({NOT_IN_SUBSET})
    shown_as = "pairs_drawn"
    holds: ClassVar[Mapping[str, str]] = {
        "recipes.npy": "as in `pairs`; view j follows the policy's specification j modulo their number",
    }
    uses_torch: ClassVar[bool] = False

    def __init__(self, column: str = "pairs", genview: str = "genview") -> None:
        check_pairs_name(self.name, column)
        self.column, self.genview = column, check_genview(genview)

    @property
    def writes(self) -> str:
        return self.column

    def reads(self, config: DrawConfig) -> tuple[str, ...]:
        return ("images",) if config.candidates == "original" else ("images", self.genview)

    def check(self, config: DrawConfig) -> None:
        policy = policy_of(config)
        check_candidates(policy, config.num_views, config.candidates)
        policy.check_joint(config.num_views)

    def inputs(self, config: DrawConfig, dataset: Dataset) -> Mapping[str, str]:
        return {**super().inputs(config, dataset), "policy": digest(policy_of(config).to_dict())}

    def sources(self, config: DrawConfig, dataset: Dataset) -> Sources:
        notes: tuple[str, ...] = ()
        if config.candidates != "original":
            rows, present = dataset.column("images").num_rows, dataset.column(self.genview).num_rows
            notes = missing_note(self.name, rows, present, self.genview, config.candidates)
        return ColumnSources(dataset, self.reads(config), notes)

    def prepare(self, config: DrawConfig, run: Run) -> ShardFn:
        policy = policy_of(config)
        policy = policy if config.side_px is None else policy.with_side(config.side_px)

        genview = run.dataset.column(self.genview) if config.candidates == "generated" else None

        def draw(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            for batch in batches(rows, ROWS_AT_ONCE):
                yield from draw_rows([self._sizes(row, genview) for row in batch], policy, config, run.stage)

        return draw

    def _sizes(self, row: Row, needed: Column | None) -> RowSizes | Reject:
        """needed: the column of generated views where the row must have one."""
        generated = row.joined.get(self.genview)
        if needed is not None and generated is None:
            return reject_without_view(row.key, needed)
        try:
            return RowSizes(row.key, _size(row.fields), None if generated is None else _size(generated))
        except DataError as error:
            return reject(row.key, "undecodable", str(error))


def policy_of(config: DrawConfig) -> Policy:
    """The policy with the config's changes to what it samples."""
    return config.changed(load_policy(config.policy))


def _size(fields: Mapping[str, bytes]) -> Size:
    return image_size(image_field(fields)[1])


def draw_rows(
    rows: Sequence[RowSizes | Reject], policy: Policy, config: DrawConfig, stage: str
) -> Iterator[Row | Reject]:
    """A row or a reject for each of `rows`, in order."""
    usable = [row for row in rows if isinstance(row, RowSizes)]
    rounds = [
        sample_round(
            policy,
            usable,
            seed=config.seed,
            stage=stage,
            round=round,
            rounds=config.rounds,
            num_views=config.num_views,
            candidates=config.candidates,
            pipelines="alternate",
        )
        for round in range(config.rounds if usable else 0)
    ]
    drawn = iter(np.stack(rounds, axis=1)) if rounds else iter(())
    for row in rows:
        yield row if isinstance(row, Reject) else Row(row.key, {"recipes.npy": encode_npy(next(drawn))})
