"""Rows of a shard that is not complete yet, kept so that a killed job need not make them again.

A file beside the part file of the shard, written to after every row and deleted when the shard is complete. Every
record carries a checksum: whatever a kill or a power cut has left at the end is dropped, what stands before it counts.
"""

import errno
import fcntl
import json
import os
import struct
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from types import TracebackType

import xxhash

from viewkit.shards.document import canonical
from viewkit.shards.files import explained, open_own
from viewkit.shards.receipt import shard_name
from viewkit.shards.row import Reject, Row

SPOOL = ".spool"
_HEAD = struct.Struct("<QQI")
"""Bytes of the record's body, its XXH3-64, and how many of them are the description."""


class Spool:
    """Context manager. identity: digest of the column's identity; a file of another one is started over.

    kept: what was found there, by key, in the order it was written. The file belongs to one writer at a time: another
    one of the same shard (a copy of a straggler, a worker believed dead) finds nothing there and keeps nothing.
    """

    def __init__(self, folder: Path, shard: int, identity: str) -> None:
        self.path = folder / f"{shard_name(shard)}{SPOOL}"
        self.kept: dict[str, Row | Reject] = {}
        with explained(self.path):
            self._file = open(self.path, "a+b", buffering=0, opener=open_own)  # noqa: SIM115 closed by __exit__
            self._is_ours = _locked(self._file)
            if self._is_ours:
                self._load(identity)

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, outcome: Row | Reject) -> None:
        """Keep one more row or reject; one that was found here is there already."""
        if outcome.key in self.kept or not self._is_ours:
            return
        if isinstance(outcome, Reject):
            about: dict[str, object] = {"key": outcome.key, "reason": outcome.reason, "detail": outcome.detail}
            self._write(about, b"")
        else:
            sizes = {name: len(content) for name, content in outcome.fields.items()}
            self._write({"key": outcome.key, "fields": list(sizes.items())}, b"".join(outcome.fields.values()))

    def remove(self) -> None:
        """Called once the shard's receipt is there."""
        if self._is_ours:
            with explained(self.path):
                self.path.unlink(missing_ok=True)

    def _write(self, about: Mapping[str, object], content: bytes) -> None:
        description = canonical(about)
        body = description + content
        left = memoryview(_HEAD.pack(len(body), xxhash.xxh3_64_intdigest(body), len(description)) + body)
        with explained(self.path):
            while left:  # an unbuffered file may take a part of it
                left = left[self._file.write(left) :]

    def _load(self, identity: str) -> None:
        """Read the records up to the first that is damaged, and cut the file there."""
        self._file.seek(0)
        about, _, end = self._read()
        if about == {"identity": identity}:
            while True:
                about, content, after = self._read()
                if about is None:
                    break
                if "key" not in about:  # a second header: two writers without locks began at the same moment
                    end = after
                    continue
                outcome = _outcome(about, content)
                self.kept[outcome.key] = outcome
                end = after
        else:
            end = 0
        self._file.truncate(end)  # it is written to at its end, wherever it was read
        if end == 0:
            self._write({"identity": identity}, b"")

    def _read(self) -> tuple[dict[str, object] | None, bytes, int]:
        """Description, content and end of the record at hand; None where it is cut or there is none."""
        head = self._file.read(_HEAD.size)
        if len(head) == _HEAD.size:
            size, check, described = _HEAD.unpack(head)
            left = os.fstat(self._file.fileno()).st_size - self._file.tell()
            body = self._file.read(size) if size <= left else b""
            if len(body) == size and xxhash.xxh3_64_intdigest(body) == check:
                return json.loads(body[:described]), body[described:], self._file.tell()
        return None, b"", self._file.tell()


def _locked(file: FileIO) -> bool:
    """Whether nobody else has the file; True as well where there are no locks."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
    return True


def _outcome(about: Mapping[str, object], content: bytes) -> Row | Reject:
    if "reason" in about:
        return Reject(str(about["key"]), str(about["reason"]), str(about["detail"]))
    fields, start = {}, 0
    for name, size in about["fields"]:  # type: ignore[attr-defined]
        fields[name] = content[start : start + size]
        start += size
    return Row(str(about["key"]), fields)


def remove_spools(folder: Path, shards: list[int]) -> None:
    """Delete what a kill between receipt and clean-up has left of complete shards."""
    for shard in shards:
        (folder / f"{shard_name(shard)}{SPOOL}").unlink(missing_ok=True)
