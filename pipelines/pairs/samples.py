"""What the trainer gets of one row: its decoded image, and what the other columns that are read hold for it."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pairs.column import RECIPES, SCORES
from viewkit.pipelines.pairs.generated import GENVIEW
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.pairs.objects import Annotation, Unusable, read_annotation
from viewkit.shards.codecs import decode_image, decode_npy
from viewkit.shards.errors import DataError
from viewkit.shards.row import Row
from viewkit.shards.view_fields import views_of_fields

QUALITY = "quality"
"""Column of the pairs' quality, where nothing else is said."""
CACHE_BYTES = 2 * 2**30
"""Decoded images that one process keeps in memory, 2 GiB: 699,000 of 32 px, or 14,000 of 224 px."""


@dataclass(frozen=True, slots=True)
class Sample:
    """generated, recipes, scores, quality: None when the column is not read or rejected this row; scores also where the
    pairs were drawn and not scored. annotation: None when it is not read or not usable."""

    key: str
    image: UInt8[Tensor, "h w 3"]
    generated: UInt8[Tensor, "_h _w 3"] | None = None
    recipes: Float32[np.ndarray, "r v p"] | None = None
    scores: Float32[np.ndarray, "r c s"] | None = None
    quality: Float32[np.ndarray, "_r _c"] | None = None
    annotation: Annotation | None = None


def load_image(fields: Mapping[str, bytes], device: str = "cpu") -> UInt8[Tensor, "h w 3"]:
    """The row's one image, 0-255 RGB, on the device. `DataError` when it cannot be decoded."""
    return torch.from_numpy(np.ascontiguousarray(decode_image(fields))).to(device)


class SampleReader:
    """Turns rows into samples, in loader threads. Small data sets are decoded once and then kept in memory.

    cache_bytes: images are kept until they take this much; later ones are decoded each time.
    pairs, genview, quality: names of these columns. has_scores: whether the pairs were scored, not just drawn.
    annotated: read the objects that the images' sources list.
    """

    def __init__(
        self,
        cache_bytes: int = CACHE_BYTES,
        pairs: str = PAIRS,
        genview: str = GENVIEW,
        quality: str = QUALITY,
        *,
        has_scores: bool = True,
        annotated: bool = False,
    ) -> None:
        self.cache_bytes, self.has_scores, self.annotated = cache_bytes, has_scores, annotated
        self.pairs, self.genview, self.quality = pairs, genview, quality
        self._kept: dict[tuple[str, str, int], Tensor] = {}
        self._size = 0
        self._lock = threading.Lock()

    def __call__(self, row: Row, epoch: int | None = None) -> Sample:
        """epoch: of several generated views of an image, which one; they take turns, starting at one that the key
        decides. None: the first, which is the one that `viewkit score` sees."""
        genview, pairs = row.joined.get(self.genview), row.joined.get(self.pairs)
        recipes = scores = None
        if pairs is not None:
            try:
                recipes = decode_npy(pairs[RECIPES])
                scores = decode_npy(pairs[SCORES]) if self.has_scores else None
            except KeyError as error:
                raise DataError(
                    f"column '{self.pairs}': row {row.key} lacks {error}; delete the column and write it again"
                ) from error
        rated = row.joined.get(self.quality)
        if rated is not None and "quality.npy" not in rated:
            raise DataError(f"column '{self.quality}': row {row.key} lacks 'quality.npy'; rerun 'viewkit quality'")
        image = self._image("images", row.key, 0, row.fields)
        return Sample(
            key=row.key,
            image=image,
            generated=None if genview is None else self._generated(row.key, genview, epoch),
            recipes=recipes,
            scores=scores,
            quality=None if rated is None else decode_npy(rated["quality.npy"]),
            annotation=annotation_of(row, image) if self.annotated else None,
        )

    def _generated(self, key: str, fields: Mapping[str, bytes], epoch: int | None) -> UInt8[Tensor, "h w 3"]:
        if epoch is None:
            return self._image(self.genview, key, 0, fields)
        views = views_of_fields({name: content for name, content in fields.items() if name != "json"})
        number = (int(row_ids([key])[0, 0] % len(views)) + epoch) % len(views)
        return self._image(self.genview, key, number, views[number])

    def _image(self, column: str, key: str, number: int, fields: Mapping[str, bytes]) -> UInt8[Tensor, "h w 3"]:
        place = (column, key, number)
        kept = self._kept.get(place)
        if kept is not None:
            return kept
        image = load_image(fields)
        with self._lock:
            if self._size + image.numel() <= self.cache_bytes and place not in self._kept:
                self._kept[place] = image
                self._size += image.numel()
        return image


def annotation_of(row: Row, image: UInt8[Tensor, "h w 3"]) -> Annotation | None:
    """The objects of a row of `images`; None where none are listed or they do not fit the image."""
    try:
        return read_annotation(row.fields, (image.shape[0], image.shape[1]), f"column 'images', row {row.key}")
    except Unusable:
        return None
