"""Options of `viewkit score`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from viewkit.pipelines.pairs.generated import Candidates
from viewkit.shards.errors import ConfigError

MAX_ROUNDS = 10_000
"""At this many rounds a row takes 8 MB; the trainer cycles through a few."""


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """Score candidate pairs of views of every image: Semantic Consistency and Alignment Level (VS-2FI, Alg. 1).

    Every view follows one of the policy's specifications by chance, as in Alg. 1, so that half of the pairs follow one
    twice; `viewkit draw` takes them in turn.
    """

    rounds: Annotated[int, "rounds of candidate views; the trainer uses another one each epoch, in turn"] = 8
    num_views: Annotated[int, "candidate views per round (M); all M (M - 1) / 2 pairs are scored"] = 5
    gamma: Annotated[float, "alignment score an exit must exceed (eq. 5); chance is 1 / (negatives + 1)"] = 1 / 64
    candidates: Annotated[
        Candidates,
        "image that views are cropped from; mixed: original, generated, original, ... "
        "(all original where nothing was generated)",
    ] = "original"
    policy: Annotated[str, "augmentation policy, or a TOML file"] = "strengthened"
    side_px: Annotated[int | None, "side of the views the estimator sees, px; none: the estimator's"] = None
    precision: Annotated[
        Literal["fp32", "bf16"], "of the estimator's forward pass, as for `histograms` (bf16: autocast)"
    ] = "fp32"
    seed: Annotated[int, "seed of all sampling"] = 0

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise ConfigError(f"score: rounds is {self.rounds}; needed 1 ... {MAX_ROUNDS}")
        if not 2 <= self.num_views <= 64:
            raise ConfigError(f"score: num_views is {self.num_views}; needed 2 ... 64")
        if not 0 <= self.gamma < 1:
            raise ConfigError(f"score: gamma is {self.gamma}; needed at least 0 and below 1")
        if self.side_px is not None and self.side_px < 1:
            raise ConfigError(f"score: side_px is {self.side_px}; needed at least 1, or none")
        if self.seed < 0:
            raise ConfigError(f"score: seed is {self.seed}; needed at least 0")


@dataclass(frozen=True, kw_only=True)
class RescoreConfig:
    """Read Semantic Consistency and Alignment Level off stored similarities again (VS-2FI, eq. 2 and 5)."""

    gamma: Annotated[float, "alignment score an exit must exceed (eq. 5)"] = 1 / 64

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < 1:
            raise ConfigError(f"rescore: gamma is {self.gamma}; needed at least 0 and below 1")
