"""Options of `viewkit pack`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from viewkit.shards.errors import ConfigError

PILLOW_CEILING = 89_478_485
"""Pixels above which Pillow warns on every reading; an image that is packed must stay readable without."""


@dataclass(frozen=True, kw_only=True)
class PackConfig:
    """Pack images from a folder, WebDataset tars or the bundled photographs (demo:train, demo:test) into a dataset."""

    labels: Annotated[
        Literal["none", "folders"], "folders: the class is the folder of the first level (tars keep KEY.cls anyway)"
    ] = "none"
    rows_per_shard: Annotated[int, "rows of every shard but the last"] = 1024
    min_side_px: Annotated[int, "images with a shorter side are rejects"] = 16
    max_pixels: Annotated[int, "images that declare more pixels are rejects, before they are decoded"] = 67_108_864
    max_file_mb: Annotated[int, "larger files (in 10^6 bytes) are rejects, before they are read"] = 256

    def __post_init__(self) -> None:
        if self.labels not in ("none", "folders"):
            raise ConfigError(f"pack: labels is '{self.labels}'; it must be 'none' or 'folders'")
        for name, low, high in (
            ("rows_per_shard", 1, 1_000_000),
            ("min_side_px", 1, 65_535),
            ("max_pixels", 1, PILLOW_CEILING),
            ("max_file_mb", 1, 4_096),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"pack: {name} is {value}; it must lie in {low} ... {high}")
        if self.min_side_px**2 > self.max_pixels:
            raise ConfigError(
                f"pack: no image has sides of min_side_px {self.min_side_px} and at most max_pixels "
                f"{self.max_pixels} pixels; lower the first or raise the second"
            )
