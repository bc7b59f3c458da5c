"""Options of `viewkit report`."""

from dataclasses import dataclass
from typing import Annotated

from viewkit.shards.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Write one HTML page that shows what a dataset holds: pairs, generated views, histograms, curves, accuracies."""

    pairs: Annotated[int, "pairs in each of the four galleries, at most 12"] = 9
    generated: Annotated[int, "generated views shown beside their sources, at most 16"] = 12
    view_px: Annotated[int, "side of the pictures, px, 32 ... 128"] = 96
    sample: Annotated[int, "rows whose scores and levels are read, chosen by the hash of their keys"] = 4096
    seed: Annotated[int, "seed of all sampling"] = 0

    def __post_init__(self) -> None:
        for name, low, high in (("pairs", 1, 12), ("generated", 1, 16), ("view_px", 32, 128), ("sample", 1, 2**20)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"report: {name} is {value}; it must lie in {low} ... {high}")
        if self.seed < 0:
            raise ConfigError(f"report: seed is {self.seed}; it must be at least 0")
