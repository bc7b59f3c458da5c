"""What lies where in a tar: its members' headers, read once and forwards, and a look at what ends it."""

import re
import tarfile
from collections.abc import Iterator
from io import BufferedIOBase

from viewkit.pipelines.pack.archive_stream import STREAM_ERRORS, Watched, open_archive
from viewkit.pipelines.pack.keys import display
from viewkit.shards.codecs import one_line
from viewkit.shards.errors import DataError
from viewkit.shards.files import refuse_too_many_open

MEMBER = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]*)", re.DOTALL)
BLOCK = 512


class TarIndex:
    """Where every member of every sample of one tar lies.

    samples: sample key -> extension -> (offset, size) in bytes, in the tar's order. left_out: files that are no member
    of a sample (links, hidden names, names without an extension).
    Raises `DataError` for a tar that is cut or broken, for keys that come back and for doubled members.
    """

    def __init__(self, path: str, name: str) -> None:
        self.samples: dict[str, dict[str, tuple[int, int]]] = {}
        self.left_out = 0
        shown = display(name)
        current: str | None = None
        with open_archive(path, name) as stream:
            for member in _members(stream, shown):
                if member.isdir():
                    continue
                match = MEMBER.fullmatch(member.name.removeprefix("./"))
                if match is None or not member.isreg() or member.issparse():
                    self.left_out += 1
                    continue
                key, extension = match[1], match[2].lower()
                if key != current and key in self.samples:
                    raise DataError(
                        f"pack: '{shown}' holds the sample '{display(key)}' twice, in different places; "
                        "members of a sample must follow each other, and keys must differ (in WebDataset a key ends "
                        "at the first dot of the name)"
                    )
                parts = self.samples.setdefault(key, {})
                if extension in parts:
                    raise DataError(f"pack: '{shown}' holds the member '{display(member.name)}' twice; remove one")
                parts[extension] = (member.offset_data, member.size)
                current = key


def _members(stream: BufferedIOBase, shown: str) -> Iterator[tarfile.TarInfo]:
    """The members of a tar, which must be complete.

    `tarfile` takes a damaged header for the end of the archive, and what follows an end mark it never sees; so the
    block that ended it and all behind it are looked at. The stream is read forwards only.
    """
    damaged = f"pack: the tar '{shown}' is cut or damaged"
    watched = Watched(stream)
    try:
        with tarfile.open(fileobj=watched, mode="r:") as tar:
            end = 0
            while (member := tar.next()) is not None:
                if member.size < 0 or tar.offset <= end:  # a forged size that would lead back, round and round
                    raise tarfile.ReadError(f"the header before byte {end} holds an impossible size")
                end = tar.offset
                yield member
                tar.members.clear()  # type: ignore[attr-defined]  # tarfile remembers every member; a million of them are a gigabyte
            end = tar.offset
        if watched.last != bytes(BLOCK):
            raise DataError(f"{damaged}: no end mark at byte {end}; copy it again or repack it")
        while block := stream.read(1 << 20):
            if block.count(0) != len(block):
                raise DataError(
                    f"pack: the tar '{shown}' goes on after its end mark at byte {end} (concatenated tars?); "
                    "list the parts as separate files"
                )
    except (tarfile.TarError, OverflowError, RecursionError, *STREAM_ERRORS) as error:
        refuse_too_many_open(error, shown)
        advice = "a whole tar is needed, plain or compressed as its name says; copy it again or repack it"
        raise DataError(f"{damaged}, or not a tar: {one_line(error)}; {advice}") from error
