"""Options of `viewkit quality`: which frozen encoder looks at the views, and how its first component is fitted."""

from dataclasses import dataclass
from typing import Annotated, Literal

from viewkit.shards.errors import ConfigError

Precision = Literal["fp32", "fp16", "bf16"]
Sign = Literal["auto", "+", "-", "skewness"]

FILE = "file"
"""What stands for the weights in an encoder's name when they come from a file of the user's."""


@dataclass(frozen=True, kw_only=True)
class QualityConfig:
    """Quality of every stored pair: like foregrounds, unlike backgrounds (GenView, sec. 3.4)."""

    encoder: Annotated[
        str,
        "frozen network that looks at the views: estimator, open_clip:MODEL/WEIGHTS (the paper's is "
        "open_clip:convnext_base_w/laion2b_s13b_b82k_augreg) or timm:NAME; with /file the weights are those of "
        "--weights",
    ] = "estimator"
    side_px: Annotated[
        int | None, "side of the views it sees, px (default: its own; 224 for convnext_base_w, as published)"
    ] = None
    precision: Annotated[Precision, "precision of the encoder; fp16 or bf16 is faster on a GPU"] = "fp32"
    sample: Annotated[
        int, "images on whose views, those of round 0, the component is fitted; those with the smallest key hashes"
    ] = 10_000
    sign: Annotated[
        Sign,
        "which end of the component is foreground: auto (centre against border), +, - or skewness (the rarer end)",
    ] = "auto"

    def __post_init__(self) -> None:
        if not _is_encoder(self.encoder):
            raise ConfigError(
                f"quality: encoder is {self.encoder!r}; it must be estimator, open_clip:MODEL/WEIGHTS "
                "(e.g. open_clip:convnext_base_w/laion2b_s13b_b82k_augreg) or timm:NAME"
            )
        if self.side_px is not None and not 16 <= self.side_px <= 4096:
            raise ConfigError(f"quality: side_px is {self.side_px}; needed 16 ... 4096, or none")
        if self.sample < 10:
            raise ConfigError(f"quality: sample is {self.sample}; a component needs at least 10 images")

    @property
    def takes_file(self) -> bool:
        """Whether the encoder's weights are a file of the user's."""
        return self.encoder.endswith(f"/{FILE}")


def _is_encoder(name: str) -> bool:
    library, _, rest = name.partition(":")
    model, _, weights = rest.partition("/")
    return (
        name == "estimator"
        or (library == "open_clip" and bool(model and weights))
        or (library == "timm" and model != "")
    )
