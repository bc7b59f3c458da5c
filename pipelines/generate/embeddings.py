"""Embeddings of many images: their mean and deviation, and the unit rows that `retrieval` searches."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from viewkit.pipelines.generate.search import block_rows


class Embeddings:
    """A row an image, zeros where there is none. With a path the array is a file, mapped, so it may exceed memory."""

    def __init__(self, rows: int, width: int, path: Path | None) -> None:
        shape = (rows, width)
        self.values: np.ndarray = (
            np.zeros(shape, np.float32)
            if path is None
            else np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        )
        self.present = np.zeros(rows, bool)
        self.block = block_rows(width)

    def put(self, row: int, embedding: Float[Tensor, " d"]) -> None:
        self.values[row] = embedding.cpu().numpy()
        self.present[row] = True

    def statistics(self) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
        """Mean and standard deviation of each feature; a constant feature gets a deviation of 1."""
        zeros, count = np.zeros(self.values.shape[1]), self.present.sum()
        mean = sum((part.sum(axis=0) for part in self._parts()), zeros) / count
        std = np.sqrt(sum((((part - mean) ** 2).sum(axis=0) for part in self._parts()), zeros) / count)
        std[std <= 1e-6 * np.abs(mean)] = 1.0
        return torch.from_numpy(mean).float(), torch.from_numpy(std).float()

    def to_index(self, mean: Float[Tensor, " d"], std: Float[Tensor, " d"]) -> None:
        """Replace every row by its standardised embedding at unit length, in place; zeros stay."""
        for start in range(0, len(self.values), self.block):
            part = slice(start, start + self.block)
            z = (self.values[part].astype(np.float64) - mean.double().numpy()) / std.double().numpy()
            unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
            self.values[part] = np.where(self.present[part, None], unit, 0)
        if isinstance(self.values, np.memmap):
            self.values.flush()

    def _parts(self) -> Iterator[Float64[np.ndarray, "m d"]]:
        """The rows that are there, in fp64, a block at a time."""
        for start in range(0, len(self.values), self.block):
            part = slice(start, start + self.block)
            yield self.values[part][self.present[part]].astype(np.float64)
