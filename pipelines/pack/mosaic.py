"""Source ``mosaic:SOURCE``: 2 or 4 images of another source side by side, so what every crop shows is known.

Two crops of a mosaic that share no part are a false positive for certain. KEY.json lists every part with its box, as
`audit` reads objects.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from viewkit.pipelines.engine.config import config_values
from viewkit.pipelines.pack.composition import Composition
from viewkit.pipelines.pack.config import MOSAIC_OPTIONS, PackConfig
from viewkit.pipelines.pack.keys import display
from viewkit.pipelines.pack.listing import span
from viewkit.pipelines.pack.packed import open_packed
from viewkit.pipelines.pack.raw import LABEL, PATH
from viewkit.pipelines.pack.source import PlacedSources, open_source
from viewkit.pipelines.pack.stage import pack_row
from viewkit.shards.codecs import decode_image, decode_json, encode_json, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.identity import COLUMN
from viewkit.shards.row import Reject, Row
from viewkit.shards.stores.url import is_url

SIZED_BY = 64
"""Images of the source, from the first, whose sides tell the side of a part where it is not given."""


def open_mosaic(rest: str, config: PackConfig, leave_out: Path | None) -> "MosaicSources":
    """rest: any source of `pack`, or the folder of a packed dataset. Raises what these raise, and `MosaicSources`."""
    if rest.partition(":")[0] == "mosaic":
        raise ConfigError(f"pack: 'mosaic:{display(rest)}' is a mosaic of mosaics; name one source after mosaic:")
    if config.short_side_px is not None:
        raise ConfigError("pack: --short-side-px is for single images; parts of mosaics are resized by --part-px")
    folder = os.path.expanduser(rest)
    packed = Dataset(rest) if is_url(rest) else None
    if packed is not None and packed.is_column("images"):
        return MosaicSources(open_packed(packed, config), config)
    if os.path.isfile(os.path.join(folder, "images", COLUMN)):
        return MosaicSources(open_packed(Dataset(folder), config), config)
    plain = {name: value for name, value in config_values(config).items() if name not in MOSAIC_OPTIONS}
    source = open_source(rest, PackConfig(**plain), leave_out=leave_out)
    if not isinstance(source, PlacedSources):
        raise ConfigError(
            f"pack: the images of '{display(rest)}' cannot be read one by one, as mosaics need; pack them first"
        )
    return MosaicSources(source, config)


class MosaicSources:
    """Mosaics of a source's images, composed when they are read; parts are read one by one, never the whole source.

    A mosaic with a part that `pack` would reject is a reject for the same reason. Parts that are not squares of the
    asked side are cut to their largest central square and resized (bicubic, antialiased).
    Raises `DataError` for images or classes that do not suffice, `ConfigError` for sides that cannot be.
    """

    def __init__(self, source: PlacedSources, config: PackConfig) -> None:
        self._source, self._config = source, config
        down, across = (int(each) for each in (config.grid or "2x2").split("x"))
        gap_px, seed = config.gap or 0, config.mosaic_seed or 0
        same_class = config.same_class or 0.0
        self.num_rows = config.mosaics or source.num_rows
        self._composition = Composition(source.labels(), num_parts=down * across, same_class=same_class, seed=seed)
        self._is_labelled = same_class == 1
        self._side_px = config.part_px or common_side(source, config)
        step = self._side_px + gap_px
        self._corners = [(row * step, column * step) for row in range(down) for column in range(across)]
        self._size = down * step - gap_px, across * step - gap_px
        if min(self._size) < config.min_side_px or self._size[0] * self._size[1] > config.max_pixels:
            raise ConfigError(
                f"pack: mosaics of {self._size[0]} x {self._size[1]} px are not within min_side_px "
                f"{config.min_side_px} and max_pixels {config.max_pixels}; change --part-px"
            )
        facts = [down, across, self._side_px, gap_px, same_class, seed, self.num_rows, config.labels]
        self.digest = digest(["mosaic", source.digest, facts])
        self.notes = (*source.notes, *self._own_notes())

    def _own_notes(self) -> Iterator[str]:
        if self._composition.left_out:
            yield f"{self._composition.left_out} images of the source have no class and take no part in mosaics"
        if not self._composition.is_labelled:
            yield "the source has no labels, so the parts of a mosaic are any of its images"

    @property
    def num_shards(self) -> int:
        return -(-self.num_rows // self._config.rows_per_shard)

    def keys(self, shard: int) -> Sequence[str]:
        return [mosaic_key(number) for number in span(shard, self._config.rows_per_shard, self.num_rows)]

    def row(self, number: int) -> Row | Reject:
        """Raw row: a PNG, its parts as objects in KEY.json, and KEY.cls where every mosaic is of one class."""
        key = mosaic_key(number)
        canvas = np.zeros((*self._size, 3), dtype=np.uint8)
        objects = []
        fields: dict[str, bytes] = {}
        for place, (top, left) in zip(self._composition.parts(number), self._corners, strict=True):
            part = read_part(self._source, place, self._config)
            if isinstance(part, Reject):
                return Reject(key, part.reason, f"its part {part.detail}")
            pixels = fit(decode_image(part.fields), self._side_px)
            canvas[top : top + self._side_px, left : left + self._side_px] = pixels
            facts = decode_json(part.fields["json"])
            label = part.fields["cls"].decode() if "cls" in part.fields else None
            name = facts.get("label", part.key if label is None else label)
            about = {"key": part.key, "source": facts["source"], "category": name}
            index = {} if label is None else {"cls": int(label)}
            objects.append({"bbox": [left, top, self._side_px, self._side_px], **about, **index})
            if self._is_labelled:
                fields = {"cls": part.fields["cls"], LABEL: name.encode()}
        metadata = {"objects": objects, "height": self._size[0], "width": self._size[1]}
        fields |= {"png": encode_png(canvas), "json": encode_json(metadata), PATH: f"{key}.png".encode()}
        return Row(key, fields)

    def rows(self, shard: int) -> Iterator[Row | Reject]:
        for number in span(shard, self._config.rows_per_shard, self.num_rows):
            yield self.row(number)


def mosaic_key(number: int) -> str:
    """``mosaic-000123``."""
    return f"mosaic-{number:06d}"


def read_part(source: PlacedSources, place: int, config: PackConfig) -> Row | Reject:
    """An image as `pack` would store it alone, less a sample's own KEY.json, which does not reach the mosaic."""
    raw = source.row(place)
    if isinstance(raw, Reject):
        return raw
    return pack_row(Row(raw.key, {name: data for name, data in raw.fields.items() if name != "json"}), config)


def common_side(source: PlacedSources, config: PackConfig) -> int:
    """The side in px of the source's images, if the first `SIZED_BY` usable ones are squares of one side.

    Raises `ConfigError` where they are not, `DataError` where none of as many is usable.
    """
    sizes: dict[tuple[int, int], str] = {}
    for place in range(min(SIZED_BY, source.num_rows)):
        part = read_part(source, place, config)
        if isinstance(part, Row):
            height, width, _ = decode_image(part.fields).shape
            sizes.setdefault((height, width), part.key)
    if not sizes:
        raise DataError(f"pack: none of the first {min(SIZED_BY, source.num_rows)} images of the source is usable")
    if len(sizes) > 1 or any(height != width for height, width in sizes):
        shown = ", ".join(f"{height} x {width} px ({key})" for (height, width), key in list(sizes.items())[:2])
        raise ConfigError(
            f"pack: the source's images are not squares of one side, e.g. {shown}; give the side of a part "
            "with --part-px"
        )
    return next(iter(sizes))[0]


def fit(pixels: UInt8[np.ndarray, "h w 3"], side_px: int) -> UInt8[np.ndarray, "s s 3"]:
    """The largest central square, resized; untouched where it is of that side already."""
    height, width, _ = pixels.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = pixels[top : top + side, left : left + side]
    if side == side_px:
        return square
    resized = Image.fromarray(np.ascontiguousarray(square)).resize((side_px, side_px), Image.Resampling.BICUBIC)
    return np.asarray(resized)
