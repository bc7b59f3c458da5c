"""The bytes of a tar as a stream that is read forwards: plain, or decompressed on the way.

gzip, bzip2 and xz come with Python; Zstandard and LZ4 by pyarrow (extra ``parquet``). Nothing is unpacked to disk.
"""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from viewkit.pipelines.pack.keys import display
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import refuse_too_many_open

STREAM_ERRORS = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
"""What reading of a cut or damaged archive raises."""

BY_PYARROW = {".zst": "zstd", ".tzst": "zstd", ".lz4": "lz4"}
BY_PYTHON: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.open,
    ".tbz2": bz2.open,
    ".xz": lzma.open,
    ".txz": lzma.open,
}
"""Last suffix of a compressed tar -> what opens it; each seeks back by beginning anew."""


def open_archive(path: str, name: str) -> io.BufferedIOBase:
    """The tar at `path`, decompressed by the end of its name. `DataError` where it cannot be opened."""
    suffix = Path(name.lower()).suffix
    try:
        if suffix in BY_PYARROW:
            return io.BufferedReader(ArrowStream(path, BY_PYARROW[suffix], name), 1 << 16)
        opened: io.BufferedIOBase = BY_PYTHON.get(suffix, _plain)(path)
        return opened
    except OSError as error:
        refuse_too_many_open(error, name)
        raise DataError(f"pack: the tar '{display(name)}' cannot be read: {error.strerror or error}") from error


def _plain(path: str) -> io.BufferedIOBase:
    return open(path, "rb")


class ArrowStream(io.RawIOBase):
    """A file that pyarrow decompresses; seeks forwards by reading on, and back by beginning anew."""

    def __init__(self, path: str, codec: str, name: str) -> None:
        try:
            import pyarrow
        except ImportError as error:
            raise ConfigError(
                f"pack: '{display(name)}' is compressed by {codec}, which takes pyarrow; pip install "
                "'.[parquet]', where viewkit's source is, or decompress it to a .tar"
            ) from error
        self._begin = lambda: pyarrow.CompressedInputStream(pyarrow.OSFile(path), codec)
        self._stream, self._at = self._begin(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = offset + (self._at if whence == io.SEEK_CUR else 0)
        if whence == io.SEEK_END:
            raise OSError("the length of a compressed file is not known")
        if target < self._at:
            self._stream, self._at = self._begin(), 0
        while self._at < target:
            skipped = len(self._stream.read(min(target - self._at, 1 << 20)))
            if not skipped:
                break
            self._at += skipped
        return self._at


class Watched(io.RawIOBase):
    """A stream that is read and skipped forwards, and remembers the last bytes it gave."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self.last = b""

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        self.last = self._stream.read(size)
        return self.last
