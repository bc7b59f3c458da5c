"""Which source a command's argument means."""

from pathlib import Path
from typing import Protocol

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.demo import DemoSources
from viewkit.pipelines.pack.folder import FolderSources
from viewkit.pipelines.pack.keys import display
from viewkit.pipelines.pack.listing import COMPRESSED_TARS, Folder, Found, list_folder
from viewkit.pipelines.pack.tars import TarSources
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.sources import Sources

NEEDED = "a folder of images, a WebDataset tar, a folder of such tars, demo:train or demo:test is needed"


class PackSources(Sources, Protocol):
    """What the three kinds of source share beyond `Sources`."""

    digest: str
    """Hexadecimal SHA-256 of the listing."""

    notes: tuple[str, ...]
    """Lines for the user: what was left out."""


def open_source(source: str, config: PackConfig, *, leave_out: Path | None = None) -> PackSources:
    """List a source. leave_out: a folder below it to skip, the dataset itself.

    Raises `ConfigError` for an unknown demo split or labels that the source cannot give, `DataError` for a source that
    is missing, empty, unreadable or of another kind.
    """
    rows_per_shard, max_bytes = config.rows_per_shard, config.max_file_mb * 10**6
    if source.startswith("demo:"):
        split = source.removeprefix("demo:") or "train"
        if split not in ("train", "test"):
            raise ConfigError(f"pack: the source '{source}' has no such split; use demo:train or demo:test")
        return DemoSources(split, rows_per_shard=rows_per_shard)
    if not source.strip():
        raise ConfigError(f"pack: the source is empty; {NEEDED}")
    root = Path(source).expanduser()
    shown = display(source)
    try:
        is_folder, is_file = root.is_dir(), root.is_file()
    except (OSError, ValueError) as error:
        raise DataError(f"pack: the source '{shown}' cannot be looked at: {error}; {NEEDED}") from error
    if is_file:
        found = [Found(root.name, root.stat().st_size)]
        check_is_tar(root.name, shown)
        root, folder = root.parent, Folder(tars=found)
    elif is_folder:
        folder = list_folder(root, leave_out=leave_out)
    else:
        raise DataError(f"pack: the source '{shown}' does not exist; {NEEDED}")
    if folder.images:
        return FolderSources(root, folder, labels=config.labels, rows_per_shard=rows_per_shard, max_bytes=max_bytes)
    if folder.tars:
        if config.labels == "folders":
            raise ConfigError("pack: labels 'folders' needs a folder of images; tars bring their labels as KEY.cls")
        return TarSources(root, folder.tars, rows_per_shard=rows_per_shard, max_bytes=max_bytes)
    if folder.compressed:
        check_is_tar(folder.compressed[0], shown)
    held = f"holds {folder.others} files, none of them an image or a tar" if folder.others else "is empty"
    raise DataError(f"pack: the source '{shown}' {held} (hidden ones are not looked at); {NEEDED}")


def check_is_tar(name: str, shown: str) -> None:
    """`DataError` unless the name is that of an uncompressed tar."""
    lower = name.lower()
    if lower.endswith(COMPRESSED_TARS):
        raise DataError(
            f"pack: '{display(name)}' is compressed, so its rows cannot be reached by position; decompress it to a .tar"
        )
    if not lower.endswith(".tar"):
        raise DataError(f"pack: the source '{shown}' is a file; {NEEDED}")
