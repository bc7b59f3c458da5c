"""Deletes columns and artifacts of a dataset, whole, and nothing that a stage did not write."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path

from viewkit.shards.artifact import IDENTITY, RECEIPT, of_another
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import RefusedError
from viewkit.shards.files import PART, explained
from viewkit.shards.identity import COLUMN
from viewkit.shards.index_file import index_path
from viewkit.shards.lock import artifact_lock, writer_lock
from viewkit.shards.stores.mounts import mirror_of

OWN_PART = re.compile(rf".+\.[0-9a-f]{{8}}{re.escape(PART)}", re.DOTALL)
"""Names of our own part files; a user's file that merely ends alike is left alone."""
OF_A_STORE = re.compile(r".+\.[0-9a-f]{16}\.ready|unfinished\.tar", re.DOTALL)
"""Names of objects that an artifact's writer has in a store until the artifact is complete."""
OF_A_SHARD = re.compile(r"(\d{6,})\.(?:json|spool|tar|tar\.[0-9a-f]{16}\.ready)")

Names = Callable[[str], Sequence[str]]
"""Stage -> names of the files that it writes; those of folders end in /."""


def remove(dataset: Dataset, names: Sequence[str], written_by: Names) -> None:
    """Delete these columns and artifacts. Their locks are held, and nothing is deleted before all was looked through.

    `RefusedError` where another process writes one of them, or a file that no stage wrote lies in one.
    """
    with ExitStack() as held:
        for name in names:
            if dataset.is_column(name):
                held.enter_context(writer_lock(dataset.path, name))
            else:
                held.enter_context(artifact_lock(dataset.path, name, shared=False))
        found = {name: list(own_files(dataset, name, written_by)) for name in names}
        for name in sorted(names, key=lambda each: -each.count("/")):  # evaluations before the run they lie in
            index_path(dataset.path / name).unlink(missing_ok=True)
            _delete(dataset.path / name, found[name])


def own_files(dataset: Dataset, name: str, written_by: Names) -> Iterator[Path]:
    """The files of a column or artifact, its identity last; `RefusedError` for one that its stage does not write."""
    folder = dataset.path / name
    column = dataset.is_column(name)
    own = [] if column else [*written_by(dataset.artifact(name).identity.stage), IDENTITY, RECEIPT]
    identity = folder / (COLUMN if column else IDENTITY)
    for path in strangers(folder, own, column=column):
        raise RefusedError(
            f"{path} was not written by viewkit, and {folder} is to be deleted; move the file away and run the command "
            "again"
        )
    yield from (path for path in _files(folder) if path != identity)
    yield identity


def strangers(folder: Path, own: Sequence[str], *, column: bool = False) -> Iterator[Path]:
    """Files of the folder that are none of `own` (names and patterns; of folders with a / at the end), nor parts.

    column: the folder is one of shards. Artifacts that lie in it (a run's evaluations) are not looked into.
    """
    stored = mirror_of(folder) is not None
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        known = any(fnmatch(name, f"{each}*" if each.endswith("/") else each) for each in own)
        if not (
            known
            or OWN_PART.fullmatch(path.name)
            or (stored and OF_A_STORE.fullmatch(path.name))
            or (column and (name == COLUMN or OF_A_SHARD.fullmatch(name)))
        ):
            yield path


def _files(folder: Path) -> list[Path]:
    mirror = mirror_of(folder)
    elsewhere = [] if mirror is None else [mirror.root / key for key in mirror.below(folder)]
    with explained(folder):
        found = sorted({*folder.rglob("*"), *elsewhere})
        return [
            path
            for path in found
            if (path.is_symlink() or not path.is_dir())
            and not of_another(path, folder)
            and (mirror is not None or path.parent.is_dir())
        ]


def _delete(folder: Path, files: Sequence[Path]) -> None:
    mirror = mirror_of(folder)
    if mirror is not None:
        mirror.forget([mirror.tars.urls_key(folder), *(mirror.key(path) for path in files)])
    with explained(folder):
        for path in files:
            path.unlink(missing_ok=True)
        below = sorted((path for path in folder.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
        for path in [*below, folder]:
            if not any(path.iterdir()):
                path.rmdir()
