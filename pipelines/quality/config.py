"""Options of `viewkit quality`: which frozen encoder the views are encoded by, and the fit of its foreground."""

from dataclasses import dataclass
from typing import Annotated

from viewkit.pipelines.encoders.names import ENCODER_HELP, PRECISION_HELP, AnyPrecision
from viewkit.pipelines.foreground.config import ForegroundConfig, SampleOption, SignOption


@dataclass(frozen=True, kw_only=True)
class QualityConfig:
    """Quality of every stored pair: like foregrounds, unlike backgrounds (GenView, sec. 3.4)."""

    encoder: Annotated[
        str,
        f"frozen network that encodes the views: {ENCODER_HELP}; the paper's is "
        "open_clip:convnext_base_w/laion2b_s13b_b82k_augreg",
    ] = "estimator"
    side_px: Annotated[
        int | None, "side of the views it encodes, px (default: its own; 224 for convnext_base_w, as published)"
    ] = None
    precision: Annotated[AnyPrecision, f"precision of the encoder: {PRECISION_HELP}"] = "auto"
    sample: SampleOption = 10_000
    sign: SignOption = "auto"

    def __post_init__(self) -> None:
        self.foreground()  # its own checks

    def foreground(self) -> ForegroundConfig:
        """Config of the fit on stored views that has to run first."""
        return ForegroundConfig(
            encoder=self.encoder, side_px=self.side_px, precision=self.precision, sample=self.sample, sign=self.sign
        )
