"""One artifact of a dataset: a folder of files with an identity, written by a fit stage."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from viewkit.shards import schema
from viewkit.shards.commands import command_for
from viewkit.shards.document import digest, read_document, write_document, write_first_document
from viewkit.shards.errors import DataError, MissingError, RefusedError
from viewkit.shards.files import explained, sync_folder
from viewkit.shards.identity import COLUMN, Identity, read_identity
from viewkit.shards.schema import require
from viewkit.shards.spans import spanned
from viewkit.shards.stores.mounts import mirror_of
from viewkit.shards.stores.url import refuse_url

IDENTITY = "artifact.json"
RECEIPT = "receipt.json"
FIELDS = {"identity": schema.text, "files": schema.values(schema.table), "logs": schema.texts, "numbers": schema.table}
FILE = {"bytes": schema.whole(0, schema.MAX_BYTES), "sha256": schema.text}


def file_digest(path: Path, sync: bool = False) -> str:
    """SHA-256 of a file; sync: make it durable first."""
    with explained(path), open(path, "rb") as file:
        if sync:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


@spanned("finish")
def finish_artifact(
    folder: Path, identity: str, numbers: Mapping[str, Any], logs: Sequence[str], scratch: Sequence[str] = ()
) -> None:
    """Write the receipt that makes the folder complete: size and SHA-256 of every file in it, each made durable first.

    logs: names of files, and of folders, that may differ between runs of one identity; listed, but not part of the
    digest. scratch: folders in it that are left out, and deleted once the receipt is there.
    """
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": file_digest(path, sync=True)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not of_another(path, folder)
        and path.name not in (IDENTITY, RECEIPT)
        and path.relative_to(folder).parts[0] not in scratch
    }
    sync_folder(folder)
    mirror = mirror_of(folder)
    if mirror is not None:
        mirror.artifacts.publish(folder, {name: str(entry["sha256"]) for name, entry in files.items()})
    receipt = {
        "identity": identity,
        "files": files,
        "logs": sorted(name for name in files if name in logs or name.split("/")[0] in logs),
        "numbers": dict(numbers),
    }
    if mirror is None:  # a lock keeps other writers away, and the files are those that this receipt names
        write_document(folder / RECEIPT, receipt)
    else:
        write_first_document(folder / RECEIPT, receipt)
        mirror.artifacts.settle(folder, Artifact(folder, folder.name).digests)
    for name in scratch:
        shutil.rmtree(folder / name, ignore_errors=True)


def refuse_inside(path: Path, command: str) -> None:
    """`RefusedError` when `path` lies in a folder that a stage wrote, where a file of its own may be overwritten, and
    `ConfigError` when it is in a store: what is written outside of datasets is local."""
    refuse_url(path, command)
    for folder in path.absolute().parents:
        if (folder / IDENTITY).exists() or (folder / COLUMN).exists():
            raise RefusedError(f"{command}: {path} lies in {folder}, which a stage wrote; choose a place outside of it")


def of_another(path: Path, folder: Path) -> bool:
    """Whether `path` belongs to an artifact nested in this one (a run's evaluation lies in the run's folder)."""
    return any((parent / IDENTITY).exists() for parent in path.parents if folder in parent.parents)


class Artifact:
    """A complete artifact; `DataError` when it is unfinished, or when a file is not as its receipt says."""

    def __init__(self, path: Path, name: str) -> None:
        self.folder = path
        self.name = name

    @cached_property
    def identity(self) -> Identity:
        path = self.folder / IDENTITY
        if not path.is_file():
            raise DataError(f"{path}: missing; '{self.name}' was not written by viewkit or was moved")
        return read_identity(path, f"restore it from a copy, or delete {self.folder} and rerun the stage")

    @property
    def is_complete(self) -> bool:
        return (self.folder / RECEIPT).is_file()

    @cached_property
    def receipt(self) -> dict[str, Any]:
        stage = self.identity.stage
        if not self.is_complete:
            raise MissingError(f"{self.folder}: not finished; rerun '{command_for(self.name, stage)}'")
        path = self.folder / RECEIPT
        remedy = f"delete it and rerun 'viewkit {stage}'"
        content = read_document(path, remedy)
        require(content, FIELDS, path, remedy)
        for name, entry in content["files"].items():
            require(entry, FILE, f"{path}: {name}", remedy)
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise DataError(f"{path}: damaged, it names a file outside of its folder ({name}); {remedy}")
        if content["identity"] != self.identity.digest:
            raise DataError(f"{path}: belongs to another identity; delete it and rerun 'viewkit {stage}'")
        return content

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers its stage returned."""
        return dict(self.receipt["numbers"])

    @property
    def files(self) -> list[str]:
        return list(self.receipt["files"])

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every file."""
        return {name: entry["sha256"] for name, entry in self.receipt["files"].items()}

    @property
    def digest(self) -> str:
        """Digest of the identity and of every file but the logs."""
        logs = set(self.receipt["logs"])
        files = {name: sha256 for name, sha256 in self.digests.items() if name not in logs}
        return digest([self.identity.digest, files])

    def whole_folder(self, below: str = "") -> Path:
        """The folder with all of its files in it, for readers that open them by themselves; of a dataset in a store
        they are brought into the cache. below: only those whose names begin like this."""
        for file in self.files if mirror_of(self.folder) is not None else ():
            if file.startswith(below):
                self.path(file)
        return self.folder

    def path(self, file: str) -> Path:
        """Path of one of its files, read once to check that not a bit of it has changed."""
        entry = self.receipt["files"].get(file)
        if entry is None:
            raise DataError(f"{self.folder}: holds no file '{file}'; rerun 'viewkit {self.identity.stage}'")
        path = self.folder / file
        mirror = mirror_of(path)
        if mirror is not None:
            mirror.artifacts.bring(self.folder, file, entry["bytes"], entry["sha256"])
        if not path.is_file():
            raise DataError(
                f"{path}: missing; delete {self.folder / RECEIPT} and rerun 'viewkit {self.identity.stage}'"
            )
        if path.stat().st_size != entry["bytes"] or file_digest(path) != entry["sha256"]:
            raise DataError(
                f"{path}: damaged, its bytes do not match the receipt; restore it, or delete {self.folder} and rerun "
                f"'viewkit {self.identity.stage}'"
            )
        return path
