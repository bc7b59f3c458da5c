"""metrics.jsonl: one line of numbers for every few steps, kept in step with the checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path

from viewkit.shards.files import explained, read_file, write_whole

Number = float | int | None


class MetricsLog:
    """Appends lines. A resumed run first drops what lies beyond its checkpoint, a torn last line too."""

    def __init__(self, path: Path, resume_at: int) -> None:
        self.path = path
        kept = [line for line in read_metrics(path) if int(line["step"] or 0) <= resume_at] if path.is_file() else []
        write_whole(path, b"".join(_render(line) for line in kept))

    def append(self, line: Mapping[str, Number]) -> None:
        """Values that JSON cannot hold (NaN, infinity) become null."""
        with explained(self.path), open(self.path, "ab") as file:
            file.write(_render(line))

    def close(self) -> None:
        """Nothing is kept open between lines."""


def read_metrics(path: Path) -> list[dict[str, Number]]:
    """Lines of a metrics.jsonl, oldest first; a torn last line is left out."""
    *whole, last = read_file(path).split(b"\n")
    del last
    return [json.loads(line) for line in whole if line]


def _render(line: Mapping[str, Number]) -> bytes:
    finite = {name: value if value is None or abs(value) < float("inf") else None for name, value in line.items()}
    return json.dumps(finite).encode() + b"\n"
