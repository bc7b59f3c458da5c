"""`viewkit.webdataset`: rows or pairs of a dataset as a `webdataset` pipeline, for trainers that are built on it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from viewkit.pipelines.labels import Labels, labels_of
from viewkit.pipelines.losses.row_weights import quality_weights_within
from viewkit.pipelines.pairs.column import SCORES, has_scores, num_exits_of, score_names
from viewkit.pipelines.pairs.load import load_pairs
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.pairs.plan import ViewPlan
from viewkit.pipelines.pairs.samples import Sample, SampleReader
from viewkit.pipelines.pairs.scene import scene_of
from viewkit.pipelines.pairs.source import PairSource
from viewkit.shards.codecs import decode_npy
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.sources import check_alignment
from viewkit.shards.stream import SHUFFLE, FieldsOfRows, RowPipeline, RowTurn, decode_fields, row_pipeline

PAIR_OPTIONS = ("policy", "side_px")
"""Options of `load_pairs` that pairs cannot do without."""
UNLABELLED = -1


def webdataset(
    dataset: Dataset | str | Path,
    columns: Sequence[str] = ("images",),
    *,
    shuffle: int = SHUFFLE,
    decode: bool | str = True,
    seed: int = 0,
    complete: bool = False,
    select: str | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> RowPipeline:
    """A `webdataset` pipeline that gives every row once over all nodes and workers, or a `DataError` for damage.

    Without `select`, rows of `columns` joined by key: dicts of ``__key__``, ``__url__``, the first column's fields
    (``jpg``, ``cls``, ``json``) and the others' with the column's name before them (``pairs.scores.npy``).

    columns: the first gives the rows; a row that another one rejected lacks its fields, and is left out with
        `complete`.
    shuffle: rows in every worker's buffer; shards are shuffled, too. 0: everything in order.
    decode: True: strictly, by `shards.stream.decode_fields`; False: bytes; a word such as ``"pil"`` or ``"torchrgb"``:
        webdataset's own decoder of that name.
    seed: of the order. Call ``set_epoch(e)`` on the pipeline before an epoch where workers are not persistent.

    With `select` (``random``, ``stored``, ``vs2fi`` ...), rendered pairs: dicts of ``__key__``, ``views1`` and
    ``views2`` [3 s s], normalised, ``cls`` (-1 where there is none), ``recipes`` [2 p], a stored pair's scores by name
    (``semantic_consistency`` ..., NaN where the row has none), and ``quality`` where `weights` is ``"quality"``.

    batch_size: yield batches instead, everything stacked along a first axis, ``__key__`` a list; they also hold
        ``weights``, which sum to the rows of the batch. The last batch of a worker may be smaller.
    options: as in `load_pairs`: `policy` and `side_px`, which are needed, pairs, k_sc, k_al, alpha, weights ...

    Raises `ConfigError` for options that do not fit, `DataError` for a column that is missing or of other images.
    """
    dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    if select is None:
        strangers = sorted(options) + (["batch_size"] if batch_size is not None else [])
        if strangers:
            raise ConfigError(
                f"webdataset: {strangers[0]} belongs to pairs; give select, too, or use the pipeline's own .batched()"
            )
        return _rows(dataset, columns, shuffle=shuffle, decode=decode, seed=seed, complete=complete)
    if tuple(columns) != ("images",) or decode is not True or complete:
        raise ConfigError("webdataset: with select, the columns and their decoding follow from it; leave them out")
    lacking = [name for name in PAIR_OPTIONS if name not in options]
    if lacking:
        raise ConfigError(f"webdataset: select='{select}' renders pairs, which needs {' and '.join(lacking)}")
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"webdataset: batch_size is {batch_size}; it must be at least 1")
    pairs = RenderedPairs(dataset, batch_size, {"select": select, "seed": seed, **options})
    return row_pipeline(pairs.columns, shuffle=shuffle, seed=seed).compose(pairs)


def _rows(
    dataset: Dataset, columns: Sequence[str], *, shuffle: int, decode: bool | str, seed: int, complete: bool
) -> RowPipeline:
    if isinstance(columns, str) or not columns or len(set(columns)) < len(columns):
        raise ConfigError(f"webdataset: columns is {columns!r}; give a list of names, each once")
    opened = [dataset.column(name) for name in columns]
    for column in opened:
        dataset.check_inputs(column.name)
        check_alignment(opened[0], column)
    pipeline = row_pipeline(opened, shuffle=shuffle, seed=seed).compose(FieldsOfRows(opened, complete=complete))
    if isinstance(decode, str):
        return pipeline.decode(decode)
    return pipeline.map(decode_fields) if decode else pipeline


class RenderedPairs:
    """The last stage of a pipeline of pairs. What `load_pairs` opens and checks is opened once in every process."""

    def __init__(self, dataset: Dataset, batch_size: int | None, options: Mapping[str, Any]) -> None:
        for name in ("rank", "world_size", "device"):
            if name in options:
                raise ConfigError(
                    f"webdataset: leave {name} out; rows are split by node and worker, and stay on the CPU"
                )
        if "steps" in options:
            raise ConfigError("webdataset: leave steps out, a pipeline does not know its own; give epochs")
        self.dataset, self.batch_size, self.options = dataset, batch_size, dict(options)
        self._source: PairSource | None = None
        self._labels: Labels | None = None
        self.score_names = self._score_names()

    @property
    def source(self) -> PairSource:
        """Whose sampler and reader are used; its loader is not."""
        if self._source is None:
            self._source = load_pairs(self.dataset, batch_size=1, **self.options)
            reader = self._source.loader.transform
            assert isinstance(reader, SampleReader)
            reader.cache_bytes = 0  # rows stream past a worker; keeping them would multiply the memory
        return self._source

    @property
    def labels(self) -> Labels:
        """What was attached to the images later, read once in every process."""
        if self._labels is None:
            self._labels = labels_of(self.dataset)
        return self._labels

    @property
    def columns(self) -> list[Column]:
        """What such pairs are read from, checked to belong together."""
        return [self.source.loader.first, *self.source.loader.others]

    def __call__(self, turns: Iterable[RowTurn]) -> Iterator[dict[str, Any]]:
        waiting: list[RowTurn] = []
        for turn in turns:
            waiting.append(turn)
            if len(waiting) == (self.batch_size or 1):
                yield self.render(waiting)
                waiting = []
        if waiting:
            yield self.render(waiting)

    def render(self, turns: Sequence[RowTurn]) -> dict[str, Any]:
        """One batch, or where no batch size was given its only row."""
        source, epoch = self.source, turns[0].epoch
        reader: Any = source.loader.transform
        samples: list[Sample] = [
            reader(turn.row, epoch=epoch) if source.cycle_generated else reader(turn.row) for turn in turns
        ]
        plan = source.sampler(samples, epoch)
        scene = scene_of(samples, plan.recipes, source.policy, "cpu", plan.sides_px)
        views1, views2 = scene.render()
        batch = {
            "__key__": [sample.key for sample in samples],
            "views1": views1,
            "views2": views2,
            "cls": torch.tensor([label_of(turn, self.labels) for turn in turns]),
            "recipes": torch.from_numpy(plan.recipes),
            **self._scores(plan),
        }
        if self.batch_size is None:
            return {name: values[0] for name, values in batch.items()}
        quality = batch.get("quality")
        batch["weights"] = torch.ones(len(samples)) if quality is None else quality_weights_within(quality)
        return batch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None, "_labels": None}

    def _score_names(self) -> tuple[str, ...]:
        """Of the scores of stored pairs, where they are read and were scored."""
        for column in self.columns:
            if column.name == self.options.get("pairs", PAIRS) and has_scores(column) and column.num_rows:
                return score_names(num_exits_of(decode_npy(column.fields(0)[SCORES])))
        return ()

    def _scores(self, plan: ViewPlan) -> dict[str, Any]:
        """Every score by its name, NaN where a row has no pairs, and the quality where it is asked for."""
        none = np.full((len(plan.recipes), len(self.score_names)), np.nan, np.float32)
        found = dict(zip(self.score_names, (none if plan.scores is None else plan.scores).T, strict=True))
        if plan.quality is not None:
            found["quality"] = plan.quality
        return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in found.items()}


def label_of(turn: RowTurn, labels: Labels) -> int:
    """The row's class index, its own or the attached one; `UNLABELLED` where it has none."""
    label = labels.of(turn.row.key, turn.row.fields)
    if label is None:
        return UNLABELLED
    if not label.strip().isdigit():
        raise DataError(f"row {turn.row.key}: field 'cls' is no class index; pack the images again")
    return int(label)
