"""Options of `viewkit foreground`, which `generate` and `quality` share."""

from dataclasses import dataclass
from typing import Annotated, Literal

from viewkit.pipelines.encoders.names import ENCODER_HELP, PRECISION_HELP, AnyPrecision, check_side, encoder_card
from viewkit.shards.errors import ConfigError

Sign = Literal["auto", "+", "-", "skewness", "reference"]

SampleOption = Annotated[int, "images the foreground component is fitted on, those with the smallest key hashes"]
ShareOption = Annotated[float, "share of the sample's patch tokens that counts as foreground"]
SignOption = Annotated[
    Sign,
    "which end of the component is foreground: auto (centre against border), +, -, skewness (the rarer end), or "
    "reference (the end the paper took, for its ViT-H/14)",
]


@dataclass(frozen=True, kw_only=True)
class ForegroundConfig:
    """Fit the component of patch tokens that tells foreground (GenView, sec. 3.2)."""

    encoder: Annotated[str, f"whose patch tokens tell foreground: {ENCODER_HELP}"] = "estimator"
    sample: SampleOption = 10_000
    share: ShareOption = 0.40
    sign: SignOption = "auto"
    precision: Annotated[AnyPrecision, f"precision of the encoder: {PRECISION_HELP}"] = "auto"
    index: Annotated[
        bool, "with --of images, also store the embedding of every image, which the generator 'retrieval' searches"
    ] = True
    side_px: Annotated[int | None, "with --of views, side of the views, px (default: the encoder's own)"] = None

    def __post_init__(self) -> None:
        encoder_card(self.encoder)
        check_side(self.side_px)
        if self.sample < 10:
            raise ConfigError(f"sample is {self.sample}; a component needs at least 10 images")
        if not 0 < self.share < 1:
            raise ConfigError(f"share is {self.share}; it must lie between 0 and 1, e.g. 0.40")
