"""Weights named by a hub id and a commit: downloaded once into the Hugging Face cache, then found there offline."""

import re
from collections.abc import Collection
from pathlib import Path

from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.stores.url import is_url

SOURCES = "docs/generators.md lists where to download the weights"
"""The end of every message about weights that are missing or damaged."""

PINNED = re.compile(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})")
ID = re.compile(r"[\w.-]+/[\w.-]+(@.*)?")
PLAIN = ("*.json", "*.txt", "*/model.safetensors", "*diffusion_pytorch_model.safetensors")
HALF = ("*.json", "*.txt", "*/model.fp16.safetensors", "*diffusion_pytorch_model.fp16.safetensors")
"""What is downloaded: settings, vocabularies and safetensors, never a pickle and never code."""


def local_folder(path: Path, parts: Collection[str] = ("unet",)) -> Path:
    """`path` itself where it exists, else the cached folder of the hub id that it is.

    parts: those that hold weights. A cached folder that lacks one comes from an interrupted download, which is resumed.

    A branch or tag may change after a column was written, so an id without a full commit hash is a `ConfigError`.
    `DataError` when there is no such folder, or the id cannot be downloaded.
    """
    if is_url(path):
        from viewkit.shards.stores.folder import bring_weights

        return bring_weights(path)
    name = path.as_posix()
    if path.exists():
        return path
    if found := PINNED.fullmatch(name):
        return _snapshot(found[1], found[2], parts)
    if "@" in name and ID.fullmatch(name):
        raise ConfigError(
            f"--weights {name}: a hub id must be pinned to a commit, org/name@COMMIT with all 40 hex digits; "
            "docs/generators.md says more"
        )
    raise DataError(
        f"{path}: there is no such folder; --weights takes a local folder, or org/name@COMMIT of the hub, {SOURCES}"
    )


def _snapshot(repository: str, commit: str, parts: Collection[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    def fetch(patterns: tuple[str, ...], offline: bool) -> Path:
        found = snapshot_download(repository, revision=commit, allow_patterns=list(patterns), local_files_only=offline)
        return Path(found)

    for patterns in (PLAIN, HALF):
        try:
            if _has_weights(folder := fetch(patterns, offline=True), parts):
                return folder
        except (OSError, ValueError):
            continue  # not in the cache, or not all of it: downloaded below
    try:
        folder = fetch(PLAIN, offline=False)
        return folder if _has_weights(folder, parts) else fetch(HALF, offline=False)
    except (OSError, ValueError, HTTPError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"--weights {repository}@{commit[:12]}...: cannot be fetched ({first}); check id and commit, or download "
            "it once on a machine with a connection and give the folder (docs/generators.md lists the copies)"
        ) from error


def _has_weights(folder: Path, parts: Collection[str]) -> bool:
    """Whether every part has some; which file it has to be is checked by `PipelineFolder`."""
    return all(any(folder.glob(f"{part}/*.safetensors")) for part in parts)
