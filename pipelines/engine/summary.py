"""What a run of a stage did."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from viewkit.shards.column import ShardFacts


@dataclass
class Summary:
    """seen = kept + rejected, over all complete shards of the column, those of earlier runs included.

    written: shards (or the one artifact) that this run wrote. numbers: what a fit stage returned.
    bytes: size of all complete shards, or of the artifact.
    """

    stage: str
    folder: Path
    shards: int = 0
    written: int = 0
    seen: int = 0
    kept: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, Any] = field(default_factory=dict)
    bytes: int = 0

    def add(self, shard: ShardFacts) -> None:
        self.shards += 1
        self.seen += shard.seen
        self.kept += shard.kept
        self.bytes += shard.bytes
        self.rejected.update(reject.reason for reject in shard.rejects)

    def values(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return {
            "stage": self.stage,
            "folder": str(self.folder),
            "shards": self.shards,
            "written": self.written,
            "seen": self.seen,
            "kept": self.kept,
            "rejected": dict(self.rejected),
            "numbers": self.numbers,
            "bytes": self.bytes,
        }
