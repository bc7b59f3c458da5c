"""What a document must say before anything of it is used: names, types and bounds.

A seal shows that a document is as it was written, not that viewkit wrote it: the seal is a plain hash, so anybody can
seal anything. Whoever reads a document therefore checks its fields here, and never meets a missing name, a text where a
number should be, or a count so large that a loop over it would not end.
"""

from collections.abc import Callable, Mapping
from typing import Any

from viewkit.shards.errors import DataError

MAX_SHARDS = 10**6
MAX_ROWS = 10**10
MAX_BYTES = 2**53
"""Largest size of a file, far beyond any disk; sums of sizes stay exact in 64 bits."""

Check = Callable[[Any], str | None]
"""Says in a few words what a value should be where it is not that."""


def whole(low: int, high: int) -> Check:
    """A whole number in low ... high."""

    def check(value: Any) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return None
        return f"a whole number in {low} ... {high}"

    return check


def text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a text"


def checksum(value: Any) -> str | None:
    """XXH3-64 as 16 hex digits."""
    ok = isinstance(value, str) and len(value) == 16 and set(value) <= set("0123456789abcdef")
    return None if ok else "a checksum of 16 hex digits"


def table(value: Any) -> str | None:
    return None if isinstance(value, dict) else "a table of names and values"


def tables(value: Any) -> str | None:
    """A list of tables."""
    return None if isinstance(value, list) and all(isinstance(item, dict) for item in value) else "a list of tables"


def texts(value: Any) -> str | None:
    """A list of texts."""
    return None if isinstance(value, list) and all(isinstance(item, str) for item in value) else "a list of texts"


def text_table(value: Any) -> str | None:
    """A table whose values are texts."""
    ok = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return None if ok else "a table of texts"


def rows(*checks: Check) -> Check:
    """A list of lists, each of the given fields in that order."""

    def check(value: Any) -> str | None:
        if not isinstance(value, list):
            return "a list"
        for place, item in enumerate(value):
            if not isinstance(item, list) or len(item) != len(checks):
                return f"a list of lists of {len(checks)} values (item {place} is not)"
            for field, wanted in zip(item, checks, strict=True):
                if (need := wanted(field)) is not None:
                    return f"a list whose item {place} holds {need}"
        return None

    return check


def values(wanted: Check) -> Check:
    """A table every value of which passes."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "a table"
        for name, item in value.items():
            if (need := wanted(item)) is not None:
                return f"a table whose '{name}' is {need}"
        return None

    return check


_size = whole(0, MAX_BYTES)


def pair_of_sizes(value: Any) -> str | None:
    """[start, size] of bytes in a file."""
    ok = isinstance(value, list) and len(value) == 2 and _size(value[0]) is None and _size(value[1]) is None
    return None if ok else f"a pair of whole numbers in 0 ... {MAX_BYTES}"


def require(content: Mapping[str, Any], fields: Mapping[str, Check], where: object, remedy: str) -> None:
    """`DataError` that names `where` and the first field that is missing or is not what it should be."""
    for name, check in fields.items():
        if name not in content:
            raise DataError(f"{where}: damaged, it lacks '{name}'; {remedy}")
        if (need := check(content[name])) is not None:
            raise DataError(f"{where}: damaged, its '{name}' is not {need}; {remedy}")
