"""Source: tiles of the photographs that ship inside scikit-image's wheel. Nothing is downloaded.

A row is a tile of 64 x 64 pixels, its class the photograph. The right 30 % of the columns of every photograph are the
test region and the rest is the training region, so a training tile and a test tile never share a pixel, though tiles
of one split overlap each other. Neighbouring regions look alike enough for the task to be possible, and differ enough
that pixels alone do not solve it (5-NN accuracy of raw pixels: 0.35, chance: 1/16).
"""

import hashlib
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt8

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import path_digest
from viewkit.pipelines.pack.numbered import RowByRow
from viewkit.pipelines.pack.raw import LABEL, PATH
from viewkit.shards.codecs import decode_with_pillow, encode_json, encode_png
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Row

PHOTOGRAPHS = {
    "astronaut": "astronaut.png",
    "brick": "brick.png",
    "camera": "camera.png",
    "chelsea": "chelsea.png",
    "coffee": "coffee.png",
    "coins": "coins.png",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "hubble": "hubble_deep_field.jpg",
    "ihc": "ihc.png",
    "moon": "moon.png",
    "motorcycle": "motorcycle_left.png",
    "page": "page.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
    "text": "text.png",
}
"""Class name -> file; the class index is the position. Seen in the wheels of scikit-image 0.25 and 0.26."""

SIDE_PX = 64
STRIDE_PX = 16
TEST_SHARE = 0.3
MAX_TILES = {"train": 120, "test": 30}
"""Tiles of one photograph, chosen by the hash of their keys, so that large photographs do not outweigh small ones."""
MIN_CONTRAST = 4.0
"""Standard deviation of a tile's grey levels, of 255; below it a tile is plain sky or black border."""


class Tile(NamedTuple):
    photograph: str
    top: int
    left: int

    @property
    def key(self) -> str:
        return f"{self.photograph}_{self.top:04d}_{self.left:04d}"


def open_demo(split: str, config: PackConfig) -> "DemoSources":
    """``demo:train`` or ``demo:test``; ``demo:`` is the first."""
    if split not in ("", "train", "test"):
        raise ConfigError(f"pack: the source 'demo:{split}' has no such split; use demo:train or demo:test")
    return DemoSources(split or "train", rows_per_shard=config.rows_per_shard)


class DemoSources(RowByRow):
    """Tiles of one split, ``train`` or ``test``, cut when they are read."""

    def __init__(self, split: str, *, rows_per_shard: int) -> None:
        self._rows_per_shard = rows_per_shard
        tiles = [tile for name in PHOTOGRAPHS for tile in list_tiles(name, split)]
        self._tiles = tuple(sorted(tiles, key=lambda tile: path_digest(tile.key)))
        facts = [split, SIDE_PX, STRIDE_PX, TEST_SHARE, MAX_TILES[split], MIN_CONTRAST]
        digests = [hashlib.sha256(photograph_bytes(name)).hexdigest() for name in PHOTOGRAPHS]
        self.digest = hashlib.sha256(encode_json([facts, digests])).hexdigest()

    @property
    def num_rows(self) -> int:
        return len(self._tiles)

    def key(self, i: int) -> str:
        return self._tiles[i].key

    def row(self, i: int) -> Row:
        name, top, left = tile = self._tiles[i]
        pixels = photograph(name)[top : top + SIDE_PX, left : left + SIDE_PX]
        return Row(
            tile.key,
            {
                "png": encode_png(np.ascontiguousarray(pixels)),
                "cls": b"%d" % list(PHOTOGRAPHS).index(name),
                "json": encode_json({"box_px": [top, left, SIDE_PX, SIDE_PX]}),
                PATH: f"demo:{PHOTOGRAPHS[name]}".encode(),
                LABEL: name.encode(),
            },
        )

    def labels(self) -> Int64[np.ndarray, " n"]:
        names = list(PHOTOGRAPHS)
        return np.array([names.index(tile.photograph) for tile in self._tiles], dtype=np.int64)


def list_tiles(name: str, split: str) -> list[Tile]:
    """Tiles of one photograph, top left corners on a grid of `STRIDE_PX`, wholly inside the split's columns."""
    pixels = photograph(name)
    height, width, _ = pixels.shape
    border = width - max(SIDE_PX, round(width * TEST_SHARE))
    first, last = (0, border) if split == "train" else (border, width)
    grey = pixels.mean(axis=2)
    corners = product(range(0, height - SIDE_PX + 1, STRIDE_PX), range(first, last - SIDE_PX + 1, STRIDE_PX))
    tiles = sorted((Tile(name, *corner) for corner in corners), key=lambda tile: path_digest(tile.key))
    with_contrast = (
        tile
        for tile in tiles
        if grey[tile.top : tile.top + SIDE_PX, tile.left : tile.left + SIDE_PX].std() >= MIN_CONTRAST
    )
    return list(islice(with_contrast, MAX_TILES[split]))


@lru_cache(maxsize=len(PHOTOGRAPHS))
def photograph(name: str) -> UInt8[np.ndarray, "h w 3"]:
    """A bundled photograph as RGB; grey ones get three equal channels."""
    return decode_with_pillow(photograph_bytes(name))


def photograph_bytes(name: str) -> bytes:
    """The file as scikit-image ships it. Raises `DataError` when it does not."""
    spec = find_spec("skimage")  # found, not imported: an import costs a second
    if spec is None or not spec.submodule_search_locations:
        raise DataError("pack: the demo needs scikit-image, which is not installed; run 'pip install scikit-image'")
    path = Path(spec.submodule_search_locations[0]) / "data" / PHOTOGRAPHS[name]
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"pack: scikit-image's photograph '{path.name}' cannot be read ({error.strerror}); "
            "reinstall it from its wheel: pip install --force-reinstall scikit-image"
        ) from error
