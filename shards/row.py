"""Rows and rejects: what a shard holds and what it had to leave out."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One sample, known by its key.

    fields: extension -> bytes of the column the row belongs to, e.g. ``{"jpg": ..., "cls": b"3", "json": ...}``.
    joined: for a stage that reads several columns, the fields of the others by column name; ``None`` where that
        column rejected the row. Never written.
    """

    key: str
    fields: Mapping[str, bytes]
    joined: Mapping[str, Mapping[str, bytes] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reject:
    """An input a stage cannot use. It keeps its place: later columns know that the key is absent, and why.

    reason: a short word from the stage's own small set, counted in receipts and by `viewkit status`.
    detail: one line for a person, e.g. the decoder's message. Never a machine's path.
    """

    key: str
    reason: str
    detail: str = ""
