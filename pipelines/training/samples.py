"""What one row gives to the trainer: its decoded image and, where they are read, what other columns hold of it."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from viewkit.shards.codecs import decode_image, decode_npy
from viewkit.shards.errors import DataError
from viewkit.shards.row import Row

CACHE_BYTES = 2 * 2**30
"""Decoded images that one process keeps in memory, 2 GiB: 699,000 of 32 px, or 14,000 of 224 px."""


@dataclass(frozen=True, slots=True)
class Sample:
    """generated, recipes, scores: None when the column is not read or rejected this row."""

    key: str
    image: UInt8[Tensor, "h w 3"]
    generated: UInt8[Tensor, "_h _w 3"] | None = None
    recipes: Float32[np.ndarray, "r v p"] | None = None
    scores: Float32[np.ndarray, "r c s"] | None = None


class SampleReader:
    """Turns rows into samples, in loader threads. Small data sets are decoded once and then kept in memory.

    cache_bytes: images are kept until they take this much; later ones are decoded whenever they are asked for.
    pairs: name of the column of scored pairs.
    """

    def __init__(self, cache_bytes: int = CACHE_BYTES, pairs: str = "pairs") -> None:
        self.cache_bytes, self.pairs = cache_bytes, pairs
        self._kept: dict[tuple[str, str], Tensor] = {}
        self._size = 0
        self._lock = threading.Lock()

    def __call__(self, row: Row) -> Sample:
        genview, pairs = row.joined.get("genview"), row.joined.get(self.pairs)
        recipes = scores = None
        if pairs is not None:
            try:
                recipes, scores = decode_npy(pairs["recipes.npy"]), decode_npy(pairs["scores.npy"])
            except KeyError as error:
                raise DataError(f"column '{self.pairs}': row {row.key} lacks {error}; rerun 'viewkit score'") from error
        return Sample(
            key=row.key,
            image=self._image("images", row.key, row.fields),
            generated=None if genview is None else self._image("genview", row.key, genview),
            recipes=recipes,
            scores=scores,
        )

    def _image(self, column: str, key: str, fields: Mapping[str, bytes]) -> UInt8[Tensor, "h w 3"]:
        kept = self._kept.get((column, key))
        if kept is not None:
            return kept
        image = torch.from_numpy(np.ascontiguousarray(decode_image(fields)))
        with self._lock:
            if self._size + image.numel() <= self.cache_bytes and (column, key) not in self._kept:
                self._kept[column, key] = image
                self._size += image.numel()
        return image
