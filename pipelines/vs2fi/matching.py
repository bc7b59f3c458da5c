"""Refusing parts that do not belong together, with the names of what differs."""

from collections.abc import Mapping
from typing import Any

from viewkit.shards.errors import RefusedError


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """``name (ours against theirs)`` for every name of `ours` whose value differs. Digests are cut to 12 characters."""
    return [
        f"{name} ({_short(ours[name])} against {_short(theirs[name])})"
        for name in ours
        if not _equal(ours[name], theirs[name])
    ]


def require_same(
    stage: str, what: str, ours: Mapping[str, Any], other: str, theirs: Mapping[str, Any], remedy: str
) -> None:
    """`RefusedError` naming every difference between `what` and `other`, and the next step."""
    names = differences(ours, theirs)
    if names:
        raise RefusedError(f"{stage}: {what} and {other} differ in {', '.join(names)}; {remedy}")


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and abs(a - b) <= 1e-6 * max(abs(a), abs(b))
    return bool(a == b)


def _short(value: Any) -> str:
    if isinstance(value, str) and len(value) == 64:
        return value[:12]
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)
