"""A dataset's rows as a `webdataset` pipeline: split by node and worker, columns joined by key, damage an error.

Plain webdataset reads the tars, too, but it drops the rest of a damaged shard without a word. Here the rows of a shard
are read through its receipt, so what is yielded is what was written, or a `DataError` that names the shard.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import webdataset
from torch.utils.data import IterableDataset
from webdataset.utils import pytorch_worker_info

from viewkit.shards.codecs import IMAGE_EXTENSIONS, decode_image, decode_json, decode_npy
from viewkit.shards.column import Column
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.receipt import tar_path
from viewkit.shards.row import Row

SHUFFLE = 1000
"""Rows among which the next one is picked."""


@dataclass(frozen=True, slots=True)
class ShardTurn:
    """A shard to be read in an epoch."""

    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class RowTurn:
    """A row with its joined columns, of a shard in an epoch."""

    row: Row
    shard: int
    epoch: int


class ShardOrder(IterableDataset[ShardTurn]):
    """All shards, in the order of the epoch that all processes share; the first stage of a pipeline.

    The epoch counts up by itself wherever the same process iterates again (no workers, or persistent ones). Workers
    that are started anew for every epoch begin at 0 again, so call `set_epoch` before each.
    """

    def __init__(self, num_shards: int, seed: int, *, shuffle: bool) -> None:
        self.num_shards, self.seed, self.shuffle = num_shards, seed, shuffle
        self._asked = torch.zeros(2, dtype=torch.int64).share_memory_()  # epoch, times it was set; workers see it
        self._seen, self._passes = 0, 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration, in every worker."""
        self._asked[0] = epoch
        self._asked[1] += 1

    def __iter__(self) -> Iterator[ShardTurn]:
        _, world_size, _, _ = pytorch_worker_info()
        if world_size > self.num_shards:
            raise ConfigError(
                f"webdataset: {world_size} processes and {self.num_shards} shards, so some would get no row; pack with "
                "fewer --rows-per-shard, or read with viewkit.load_pairs, which gives every process the same number"
            )
        base, times = self._asked.tolist()
        if times != self._seen:
            self._seen, self._passes = times, 0
        epoch = base + self._passes
        self._passes += 1
        order = generator(self.seed, epoch).permutation(self.num_shards) if self.shuffle else range(self.num_shards)
        return iter([ShardTurn(int(shard), epoch) for shard in order])


def generator(*numbers: int) -> np.random.Generator:
    """Uniforms that the numbers alone decide."""
    return np.random.default_rng(numbers)


class JoinedRows:
    """The rows of every shard in turn, each with the fields of the other columns, ``None`` where these rejected it."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.first, *self.others = columns

    def __call__(self, turns: Iterable[ShardTurn]) -> Iterator[RowTurn]:
        for turn in turns:
            for row in self.rows(turn.shard):
                yield RowTurn(row, turn.shard, turn.epoch)

    def rows(self, shard: int) -> Iterator[Row]:
        """In lockstep: all columns hold the same rows in the same order, less their rejects."""
        sources = {column.name: column.rows(shard) for column in self.others}
        heads = {name: next(rows, None) for name, rows in sources.items()}
        for row in self.first.rows(shard):
            joined: dict[str, Mapping[str, bytes] | None] = {}
            for name, rows in sources.items():
                head = heads[name]
                joined[name] = None
                if head is not None and head.key == row.key:
                    joined[name], heads[name] = head.fields, next(rows, None)
            yield Row(row.key, row.fields, joined)
        for name, head in heads.items():
            if head is not None:
                raise DataError(
                    f"{tar_path(self.first.path.parent / name, shard)}: its row {head.key} is not where column "
                    f"'{self.first.name}' has it; run 'viewkit verify {self.first.path.parent}'"
                )


class ShuffleBuffer:
    """Yields one of the next `size` rows, at random; every row once. Each worker has its own."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed

    def __call__(self, turns: Iterable[RowTurn]) -> Iterator[RowTurn]:
        kept: list[RowTurn] = []
        random: np.random.Generator | None = None
        for turn in turns:
            if random is None:
                rank, _, worker, _ = pytorch_worker_info()
                random = generator(self.seed, turn.epoch, rank, worker)
            if len(kept) < self.size:
                kept.append(turn)
                continue
            place = int(random.integers(self.size))
            yield kept[place]
            kept[place] = turn
        if random is not None:
            yield from (kept[place] for place in random.permutation(len(kept)))


class RowPipeline(webdataset.DataPipeline, webdataset.FluidInterface):
    """A `webdataset` pipeline: ``map``, ``to_tuple``, ``batched``, ``with_epoch`` ... follow as they do there."""

    def set_epoch(self, epoch: int) -> "RowPipeline":
        """The epoch that the next iteration reads; needed before each where workers are not persistent."""
        self.pipeline[0].set_epoch(epoch)
        return self


def row_pipeline(columns: Sequence[Column], *, shuffle: int = SHUFFLE, seed: int = 0) -> RowPipeline:
    """Joined rows of `columns` as `RowTurn`s, every row once over all nodes and workers.

    columns: checked to belong together; the first gives the rows. shuffle: rows in the buffer of every worker; with 0
    shards and rows come in order.
    """
    if shuffle < 0:
        raise ConfigError(f"webdataset: shuffle is {shuffle}; give the number of rows to pick from, 0 for none")
    if seed < 0:
        raise ConfigError(f"webdataset: seed is {seed}; it must be 0 or more")
    stages: list[Any] = [
        ShardOrder(columns[0].num_shards, seed, shuffle=shuffle > 0),
        webdataset.split_by_node,
        webdataset.split_by_worker,
        JoinedRows(columns),
    ]
    if shuffle:
        stages.append(ShuffleBuffer(shuffle, seed))
    return RowPipeline(*stages)


class FieldsOfRows:
    """Rows as webdataset has them: a dict of ``__key__``, ``__url__`` and the fields.

    Fields of the first column have their own names, those of the others the column's before it
    (``pairs.scores.npy``); what a column rejected is not there. complete: leave such rows out.
    """

    def __init__(self, columns: Sequence[Column], *, complete: bool = False) -> None:
        self.folder, self.complete = columns[0].path, complete

    def __call__(self, turns: Iterable[RowTurn]) -> Iterator[dict[str, Any]]:
        for turn in turns:
            row = turn.row
            if self.complete and None in row.joined.values():
                continue
            fields: dict[str, Any] = {
                "__key__": row.key,
                "__url__": str(tar_path(self.folder, turn.shard)),
                **row.fields,
            }
            for column, others in row.joined.items():
                fields |= {f"{column}.{name}": content for name, content in (others or {}).items()}
            yield fields


def decode_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Images to uint8 RGB [h w 3], ``npy`` to arrays, ``json`` to values, ``cls`` to a number, ``txt`` to text.

    Other fields stay bytes. `DataError` that names the row and field for what does not decode.
    """
    return {name: _decode(fields["__key__"], name, content) for name, content in fields.items()}


def _decode(key: str, name: str, content: Any) -> Any:
    extension = name.rpartition(".")[2]
    if name.startswith("__"):
        return content
    try:
        if extension in IMAGE_EXTENSIONS:
            return decode_image({extension: content})
        if extension == "npy":
            return decode_npy(content)
        if extension == "json":
            return decode_json(content)
        if extension == "cls":
            return int(content)
        return content.decode() if extension == "txt" else content
    except (DataError, ValueError) as error:
        raise DataError(f"row {key}: field '{name}' does not decode ({error})") from error
