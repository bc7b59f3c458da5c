"""Options of `viewkit histograms`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from viewkit.shards.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class HistogramsConfig:
    """Fit the similarity histograms that turn an estimator's outputs into indicators (VS-2FI, eq. 2 and 6)."""

    bins: Annotated[int, "equal-width bins of each histogram"] = 20
    curve: Annotated[
        Literal["bins", "isotonic"],
        "Semantic Consistency between the bins: their own values, or the nearest curve that never falls (isotonic)",
    ] = "bins"
    negatives: Annotated[
        int | None,
        "views of other images in each sum over negatives (default: the estimator's batch less one, as in its "
        "training, or as many as there are images)",
    ] = None
    images: Annotated[int, "images to count at most; taken in groups of negatives + 1"] = 8192
    num_views: Annotated[int, "views of each image; every two of them are a pair"] = 2
    pipelines: Annotated[
        Literal["random", "alternate"],
        "specification of each view: by chance, as for candidate views; or first, second, first, ..., as in training",
    ] = "random"
    prior_positive: Annotated[float, "p(pos) of eq. 2"] = 0.5
    policy: Annotated[str, "augmentation policy, or a TOML file; the candidates' own"] = "strengthened"
    side_px: Annotated[int | None, "side of the views, px; none: the estimator's"] = None
    precision: Annotated[
        Literal["fp32", "bf16"], "of the estimator's forward pass; `score` must use the same (bf16: autocast)"
    ] = "fp32"
    seed: Annotated[int, "seed of all sampling"] = 0

    def __post_init__(self) -> None:
        if self.bins < 2 or self.bins > 1024:
            raise ConfigError(f"histograms: bins is {self.bins}; needed 2 ... 1024")
        if self.images < 2:
            raise ConfigError(f"histograms: images is {self.images}; needed at least 2, an anchor and a negative")
        if self.negatives is not None and self.negatives < 1:
            raise ConfigError(f"histograms: negatives is {self.negatives}; needed at least 1")
        if self.negatives is not None and self.images <= self.negatives:
            raise ConfigError(
                f"histograms: images is {self.images} and negatives is {self.negatives}; "
                f"needed at least {self.negatives + 1} images, one group of an anchor and its negatives"
            )
        if not 2 <= self.num_views <= 64:
            raise ConfigError(f"histograms: num_views is {self.num_views}; needed 2 ... 64")
        if not 0 < self.prior_positive < 1:
            raise ConfigError(f"histograms: prior_positive is {self.prior_positive}; needed between 0 and 1")
        if self.side_px is not None and self.side_px < 1:
            raise ConfigError(f"histograms: side_px is {self.side_px}; needed at least 1, or none")
        if self.seed < 0:
            raise ConfigError(f"histograms: seed is {self.seed}; needed at least 0")
