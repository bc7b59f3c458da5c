"""The images of a packed dataset as a source, for mosaics of them."""

import numpy as np
from jaxtyping import Int64

from viewkit.pipelines.labels import labels_digest, labels_of
from viewkit.pipelines.pack.composition import NO_CLASS
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.numbered import RowByRow
from viewkit.pipelines.pack.raw import LABEL, PATH
from viewkit.shards.codecs import decode_json, image_field
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError
from viewkit.shards.row import Row


def open_packed(dataset: Dataset, config: PackConfig) -> "PackedSources":
    if config.labels == "folders":
        raise ConfigError("pack: labels 'folders' needs a folder of images; a packed dataset has its labels already")
    return PackedSources(dataset, config.rows_per_shard)


class PackedSources(RowByRow):
    """The rows of the column `images`, in its order, with labels that were attached to them later; every read is
    checked. `DataError` where column or labels are unfinished."""

    def __init__(self, dataset: Dataset, rows_per_shard: int) -> None:
        self._column = dataset.column("images")
        self._rows_per_shard = rows_per_shard
        self._labels = labels_of(dataset)
        labels = labels_digest(dataset, for_stage="pack")
        self.digest = self._column.digest if labels is None else digest([self._column.digest, labels])

    @property
    def num_rows(self) -> int:
        return self._column.num_rows

    def key(self, index: int) -> str:
        return self._column.keys()[index]

    def row(self, index: int) -> Row:
        row = self._column.row(index)
        extension, data = image_field(row.fields)
        fields = {extension: data, PATH: f"{row.key}.{extension}".encode()}
        number = self._labels.of(row.key, row.fields)
        if number is not None:
            fields["cls"] = number
            name = self._labels.classes.get(int(number))
            if "cls" in row.fields:
                name = decode_json(row.fields["json"]).get("label") if "json" in row.fields else None
            if isinstance(name, str):
                fields[LABEL] = name.encode()
        return Row(row.key, fields)

    def labels(self) -> Int64[np.ndarray, " n"]:
        """One pass over the whole column: labels lie beside the images."""
        shards = range(self._column.num_shards)
        found = [self._labels.of(row.key, row.fields) for shard in shards for row in self._column.rows(shard)]
        return np.array([NO_CLASS if label is None else int(label) for label in found], dtype=np.int64)
