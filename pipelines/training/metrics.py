"""Reading metrics.jsonl; imports no torch."""

import json
from pathlib import Path

from viewkit.shards.files import read_file

METRICS = "metrics.jsonl"
AUTOENCODER_METRICS = "autoencoder.jsonl"
"""Of the autoencoder that a generator is trained on."""
Number = float | int | None


def read_metrics(path: Path) -> list[dict[str, Number]]:
    """Lines of a metrics.jsonl, oldest first, up to the first that is torn: a power cut may leave such a line."""
    lines: list[dict[str, Number]] = []
    *complete, _ = read_file(path).split(b"\n")
    for text in complete:
        line = _parsed(text)
        if line is None:
            break
        lines.append(line)
    return lines


def _parsed(text: bytes) -> dict[str, Number] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    numbers = isinstance(line, dict) and all(value is None or isinstance(value, int | float) for value in line.values())
    return line if numbers and isinstance(line.get("step"), int) else None
