"""Options of `viewkit pack`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from viewkit.pipelines.engine.config import Group
from viewkit.shards.errors import ConfigError

PILLOW_CEILING = 89_478_485
"""Pixels above which Pillow warns on every reading; an image that is packed must stay readable without."""


MOSAIC_OPTIONS = ("grid", "mosaics", "gap", "part_px", "same_class", "mosaic_seed")
MOSAICS = Group("Mosaics, with mosaic:SOURCE alone")
PARQUET = Group("Parquet files")
PARQUET_OPTIONS = ("image_column", "label_column")


@dataclass(frozen=True, kw_only=True)
class PackConfig:
    """Pack images from a folder, tars, zip or parquet files, torchvision's folders or the bundled photographs
    (demo:train, demo:test) into a dataset."""

    NOT_IN_IDENTITY: ClassVar[tuple[str, ...]] = (*MOSAIC_OPTIONS, *PARQUET_OPTIONS, "short_side_px", "add")
    """They are among the inputs, by name, where they are given: mosaics also by the digest of the listing."""

    labels: Annotated[
        Literal["none", "folders"], "folders: the class is the folder of the first level (tars keep KEY.cls anyway)"
    ] = "none"
    rows_per_shard: Annotated[int, "rows of every shard but the last"] = 1024
    add: Annotated[bool, "pack what is new in a source that has grown, into new shards; the others stay"] = False
    min_side_px: Annotated[int, "images with a shorter side are rejects"] = 16
    max_pixels: Annotated[int, "images that declare more pixels are rejects, before they are decoded"] = 67_108_864
    max_file_mb: Annotated[int, "larger files (in 10^6 bytes) are rejects, before they are read"] = 256
    short_side_px: Annotated[
        int | None, "images with a longer shorter side are resized to it, once, and stored as JPEG (quality 95)"
    ] = None
    image_column: Annotated[str | None, "column of the images (default: found by its type and name)", PARQUET] = None
    label_column: Annotated[str | None, "column of the labels (default: found by its name)", PARQUET] = None
    grid: Annotated[
        Literal["1x2", "2x1", "2x2"] | None, "parts of a mosaic, rows x columns (default: 2x2)", MOSAICS
    ] = None
    mosaics: Annotated[int | None, "mosaics to make (default: as many as the source has images)", MOSAICS] = None
    gap: Annotated[int | None, "black pixels between the parts of a mosaic (default: 0)", MOSAICS] = None
    part_px: Annotated[
        int | None,
        "side of a part: the central square of its image, resized (default: the side that all images have)",
        MOSAICS,
    ] = None
    same_class: Annotated[
        float | None,
        "share of mosaics whose parts are all of one class; those of the others are of different ones (default: 0)",
        MOSAICS,
    ] = None
    mosaic_seed: Annotated[int | None, "seed of which images make up which mosaic (default: 0)", MOSAICS] = None

    def __post_init__(self) -> None:
        if self.labels not in ("none", "folders"):
            raise ConfigError(f"pack: labels is '{self.labels}'; it must be 'none' or 'folders'")
        for name, low, high in (
            ("rows_per_shard", 1, 1_000_000),
            ("min_side_px", 1, 65_535),
            ("max_pixels", 1, PILLOW_CEILING),
            ("max_file_mb", 1, 4_096),
            ("short_side_px", 1, 9_459),
            ("mosaics", 1, 10**9),
            ("gap", 0, 4_096),
            ("part_px", 1, 4_096),
            ("same_class", 0, 1),
            ("mosaic_seed", 0, 10**9),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"pack: {name} is {value}; it must lie in {low} ... {high}")
        if self.min_side_px**2 > self.max_pixels:
            raise ConfigError(
                f"pack: no image has sides of min_side_px {self.min_side_px} and at most max_pixels "
                f"{self.max_pixels} pixels; lower the first or raise the second"
            )

        if self.short_side_px is not None and self.short_side_px < self.min_side_px:
            raise ConfigError(
                f"pack: short_side_px is {self.short_side_px} and min_side_px {self.min_side_px}; images would become "
                "smaller than what is kept; lower min_side_px, too"
            )

    @property
    def mosaic_layout(self) -> str:
        """Options of mosaics that no look at the source is needed for, defaults filled in; names them in refusals."""
        same_class, seed = self.same_class or 0, self.mosaic_seed or 0
        return f"{self.grid or '2x2'}, gap {self.gap or 0} px, same class {same_class:g}, seed {seed}"
