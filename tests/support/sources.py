"""What tests of pack's sources share: small encoded images, and every row of a source, checked shard by shard."""

import io

import numpy as np
from PIL import Image

from viewkit.pipelines.pack.source import PackSources
from viewkit.shards.row import Reject, Row


def encoded(number: int = 0, format: str = "PNG", size: tuple[int, int] = (20, 24)) -> bytes:
    """An image of noise of (height, width), another one for every number."""
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format)
    return stream.getvalue()


def everything(source: PackSources) -> list[Row | Reject]:
    """All rows in order; `keys` says the same."""
    found = []
    for shard in range(source.num_shards):
        rows = list(source.rows(shard))
        assert [row.key for row in rows] == list(source.keys(shard))
        found += rows
    assert len(found) == source.num_rows
    return found
