"""What the SOURCE of `viewkit pack` means: ``SCHEME:REST``, or a path. A new source is its file and a line here."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from viewkit.pipelines.pack.config import MOSAIC_OPTIONS, PARQUET_OPTIONS, PackConfig
from viewkit.pipelines.pack.keys import display
from viewkit.pipelines.pack.listing import Found, Listing, kind_of_archive, list_folder
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Reject, Row
from viewkit.shards.sources import Sources
from viewkit.shards.stores.mounts import FOLDERS
from viewkit.shards.stores.url import is_url

SCHEMES: dict[str, str] = {
    "demo": "viewkit.pipelines.pack.demo:open_demo",
    "torchvision": "viewkit.pipelines.pack.torchvision_folders:open_torchvision",
}
"""SCHEME -> ``module:function``. The function is given REST and the config, and returns a `PackSources`."""

AROUND: Mapping[str, str] = {
    "mosaic": "viewkit.pipelines.pack.mosaic:open_mosaic",
}
"""SCHEME of a source that is made of another one -> ``module:function``, which is also given what to leave out."""

PATHS: Mapping[str, str] = {
    "images": "viewkit.pipelines.pack.folder:open_folder",
    "tars": "viewkit.pipelines.pack.tars:open_tars",
    "compressed": "viewkit.pipelines.pack.tars:open_compressed_tars",
    "zips": "viewkit.pipelines.pack.zips:open_zips",
    "parquets": "viewkit.pipelines.pack.parquet:open_parquets",
}
"""What a path holds (a field of `Listing`; the first that is not empty counts) -> ``module:function``. The function is
given the folder, its listing and the config."""

NEEDED = (
    "a folder of images, a WebDataset tar, a zip or parquet file, a folder of these, torchvision:NAME:SPLIT:ROOT, "
    "demo:train or demo:test is needed"
)


class PackSources(Sources, Protocol):
    """What every source of `pack` has beyond `Sources`: its rows are raw ones (`raw`), or rejects."""

    digest: str
    """Hexadecimal SHA-256 of the listing."""


@runtime_checkable
class PlacedSources(PackSources, Protocol):
    """A source whose rows can also be read one by one, in any order, and whose classes are known beforehand."""

    def row(self, place: int, /) -> Row | Reject:
        """The raw row at one of ``num_rows`` places."""
        ...

    def labels(self) -> Int64[np.ndarray, " n"]:
        """The class at every place, `composition.NO_CLASS` where it has none."""
        ...


def open_source(source: str, config: PackConfig, *, leave_out: Path | None = None) -> PackSources:
    """List a source. leave_out: a folder below it to skip, the dataset itself.

    Raises `ConfigError` for an option that the source cannot follow, `DataError` for a source that is missing, empty,
    unreadable or of another kind.
    """
    scheme, colon, rest = source.partition(":")
    if colon and scheme in AROUND:
        around: PackSources = _load(AROUND[scheme])(rest, config, leave_out)
        return around
    given = [name for name in MOSAIC_OPTIONS if getattr(config, name) is not None]
    if given:
        option = given[0].replace("_", "-")
        raise ConfigError(f"pack: --{option} is for mosaic:SOURCE alone; the source is '{display(source)}'")
    if colon and scheme in SCHEMES:
        _refuse_parquet_options(source, config)
        opened: PackSources = _load(SCHEMES[scheme])(rest, config)
        return opened
    if not source.strip():
        raise ConfigError(f"pack: the source is empty; {NEEDED}")
    root, listing = list_path(source, leave_out)
    stored = FOLDERS.get(str(root))
    for held, opener in PATHS.items():
        if getattr(listing, held):
            if held != "parquets":
                _refuse_parquet_options(source, config)
            found: PackSources = _load(opener)(root, listing, config)
            if stored is not None:
                vars(found)["stored"] = stored  # travels with the source, and is known where it arrives
            return found
    check_is_no_torchvision_folder(root, source)
    held = f"holds {listing.others} files, none of them an image or a tar" if listing.others else "is empty"
    raise DataError(f"pack: the source '{display(source)}' {held} (hidden ones are ignored); {NEEDED}")


def _refuse_parquet_options(source: str, config: PackConfig) -> None:
    given = [name for name in PARQUET_OPTIONS if getattr(config, name) is not None]
    if given:
        option = given[0].replace("_", "-")
        raise ConfigError(f"pack: --{option} is for parquet files alone; the source is '{display(source)}'")


def list_path(source: str, leave_out: Path | None) -> tuple[Path, Listing]:
    """The folder a path means and what is in it; a single tar is a listing of one. Raises `DataError`."""
    if is_url(source):
        from viewkit.pipelines.pack.in_store import list_store

        folder, listing = list_store(source, leave_out)
        return folder.root, listing
    root, shown = Path(source).expanduser(), display(source)
    try:
        is_folder, is_file = root.is_dir(), root.is_file()
    except (OSError, ValueError) as error:
        raise DataError(f"pack: the source '{shown}' cannot be read: {error}; {NEEDED}") from error
    if is_folder:
        return root, list_folder(root, leave_out=leave_out)
    if not is_file:
        raise DataError(f"pack: the source '{shown}' does not exist; {NEEDED}")
    listing = Listing()
    if kind_of_archive(root.name) is None:
        raise DataError(f"pack: the source '{shown}' is a file; {NEEDED}")
    listing.add(Found(root.name, root.stat().st_size))
    return root.parent, listing


def labels_option(source: str) -> Literal["folders", "none"]:
    """The `PackConfig.labels` with which a labelled source keeps its classes: "folders" where the folders of images are
    the classes, "none" where tars, parquet files, torchvision's folders or a packed dataset bring their own."""
    scheme, colon, _ = source.partition(":")
    if colon and scheme in SCHEMES:
        return "none" if scheme == "torchvision" else "folders"
    try:
        _, listing = list_path(source, None)
    except DataError:
        return "folders"  # what is wrong is said where it is packed
    held = next((kind for kind in PATHS if getattr(listing, kind)), "images")
    return "folders" if held in ("images", "zips") else "none"


def check_is_no_torchvision_folder(root: Path, source: str) -> None:
    """`DataError` that says how to name a dataset that torchvision keeps in a folder without plain images."""
    from viewkit.pipelines.pack.torchvision_folders import LAYOUTS, layout_in

    name = layout_in(root)
    if name is not None:
        raise DataError(
            f"pack: the source '{display(source)}' holds {name} as torchvision keeps it; name it "
            f"torchvision:{name}:SPLIT:ROOT with a SPLIT of {', '.join(LAYOUTS[name].splits)} and the folder that "
            f"torchvision is given as root"
        )


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
