"""`generator.json`: what the weights of a generator of one's own are, and what was measured of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewkit.shards.artifact import Artifact
from viewkit.shards.errors import DataError
from viewkit.shards.files import read_file, write_atomic

FACTS = "generator.json"


@dataclass(frozen=True)
class GeneratorFacts:
    """encoder: fingerprint of the estimator that conditions it. levels: the five calibrated steps. table: a row a
    level, as `measures.table.LevelRow.numbers` has it. calibration: share of noised embeddings that are still nearest
    to their own image, by level."""

    side_px: int
    encoder: Mapping[str, Any]
    levels: Sequence[int]
    calibration: Mapping[str, float]
    table: Sequence[Mapping[str, Any]]
    numbers: Mapping[str, Any]

    def write(self, folder: Path) -> None:
        values = {
            "side_px": self.side_px,
            "encoder": dict(self.encoder),
            "levels": list(self.levels),
            "calibration": dict(self.calibration),
            "table": [dict(row) for row in self.table],
            "numbers": dict(self.numbers),
        }
        write_atomic(folder / FACTS, json.dumps(values, indent=1, sort_keys=True).encode() + b"\n")

    @staticmethod
    def read(artifact: Artifact) -> "GeneratorFacts":
        path = artifact.path(FACTS)
        try:
            return GeneratorFacts(**json.loads(read_file(path)))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: not a generator's facts ({error}); rerun 'viewkit generator'") from error
