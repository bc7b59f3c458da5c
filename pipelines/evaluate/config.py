"""Options of `viewkit evaluate`."""

from dataclasses import dataclass
from typing import Annotated

from viewkit.shards.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Measure a frozen encoder on labelled images: weighted kNN and a linear probe, beside two baselines."""

    k: Annotated[str, "numbers of neighbours of the kNN probes, separated by commas"] = "20,200"
    tau: Annotated[float, "temperature of the neighbours' votes, exp(cosine / tau)"] = 0.07
    linear: Annotated[bool, "also fit a linear probe (logistic regression, L-BFGS)"] = True
    max_iterations: Annotated[int, "L-BFGS iterations at most, for each C that the linear probe tries"] = 100
    split_share: Annotated[float, "share of each class of the training images that chooses the probe's C"] = 0.2
    baselines: Annotated[bool, "also measure raw pixels and the same encoder untrained"] = True
    pixels_px: Annotated[int, "side of the pixel baseline's images, px"] = 16
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        self.neighbours()
        if not self.tau > 0:
            raise ConfigError(f"evaluate: tau is {self.tau}; it must be above 0 (the usual value is 0.07)")
        if self.max_iterations < 1:
            raise ConfigError(f"evaluate: max_iterations is {self.max_iterations}; it must be at least 1")
        if not 0 < self.split_share < 1:
            raise ConfigError(f"evaluate: split_share is {self.split_share}; it must lie between 0 and 1, e.g. 0.2")
        if not 1 <= self.pixels_px <= 128:
            raise ConfigError(f"evaluate: pixels_px is {self.pixels_px}; it must lie in 1 ... 128")
        if self.seed < 0:
            raise ConfigError(f"evaluate: seed is {self.seed}; it must be at least 0")

    def neighbours(self) -> tuple[int, ...]:
        """The numbers in `k`, in their order; `ConfigError` when one is not a whole number above 0."""
        words = [word.strip() for word in self.k.split(",")]
        if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
            raise ConfigError(f"evaluate: k is {self.k!r}; it must be whole numbers above 0, e.g. '20,200'")
        if len(set(words)) != len(words):
            raise ConfigError(f"evaluate: k is {self.k!r}; name every number once, e.g. '20,200'")
        return tuple(int(word) for word in words)
