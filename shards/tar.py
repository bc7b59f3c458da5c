"""Plain ustar members, the part of the tar format that every reader knows.

Written by hand because `tarfile` spends 50 microseconds a member and `webdataset.TarWriter` stamps the current time,
which costs a 1 kB pax header a member and makes the bytes differ from run to run.
"""

from collections.abc import Mapping

from viewkit.shards.errors import DataError

BLOCK = 512
END = bytes(2 * BLOCK)
MAX_NAME_BYTES = 100
_MODE_TO_GID = b"0000644\0" + b"0000000\0" * 2
_TAIL = b"0" + bytes(100) + b"ustar\x0000" + bytes(64 + 16 + 167)


def header(name: str, size: int) -> bytes:
    """The 512-byte header of a regular file with fixed owner, mode and time (POSIX.1-1988 ustar)."""
    raw = name.encode()
    if len(raw) > MAX_NAME_BYTES:
        raise DataError(
            f"{name}: a member's name is {len(raw)} bytes long, and tar holds {MAX_NAME_BYTES}; shorten the key"
        )
    if size >= 8**11:
        raise DataError(f"{name}: a member of {size} bytes, and tar holds {8**11 - 1}")
    front = raw.ljust(MAX_NAME_BYTES, b"\0") + _MODE_TO_GID + b"%011o\0" % size + b"%011o\0" % 0
    checksum = sum(front) + _TAIL_SUM
    return b"%b%06o\0 %b" % (front, checksum, _TAIL)


_TAIL_SUM = sum(_TAIL) + 8 * ord(" ")


def row_bytes(key: str, fields: Mapping[str, bytes]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """All members of a row as they stand in the tar, and (start, size) of every field inside these bytes.

    Fields come in the order of their extensions, so the bytes do not depend on how the row was put together.
    """
    pieces: list[bytes] = []
    places: dict[str, tuple[int, int]] = {}
    position = 0
    for extension in sorted(fields):
        data = fields[extension]
        size = len(data)
        padding = -size % BLOCK
        pieces += [header(f"{key}.{extension}", size), data, bytes(padding)]
        places[extension] = (position + BLOCK, size)
        position += BLOCK + size + padding
    return b"".join(pieces), places
