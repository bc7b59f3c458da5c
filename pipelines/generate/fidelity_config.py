"""Options of `viewkit fidelity`."""

from dataclasses import dataclass
from typing import Annotated

from viewkit.pipelines.encoders.names import ENCODER_HELP, PRECISION_HELP, AnyPrecision, encoder_card
from viewkit.shards.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FidelityConfig:
    """Measure how near generated views are to their images, by the cosine of their embeddings (GenView, tab. 10)."""

    encoder: Annotated[
        str,
        "whose embeddings are compared; best one that had no part in making the views, or it judges itself: "
        f"{ENCODER_HELP}",
    ] = "colour"
    sample: Annotated[int, "images measured, those with the smallest key hashes; the paper takes 50,000"] = 50_000
    known: Annotated[
        int, "images among which copies are looked for, those with the smallest key hashes beside the measured ones"
    ] = 10_000
    precision: Annotated[AnyPrecision, f"precision of the encoder: {PRECISION_HELP}"] = "auto"

    def __post_init__(self) -> None:
        encoder_card(self.encoder)
        if self.sample < 2:
            raise ConfigError(f"sample is {self.sample}; at least 2 images are needed")
        if self.known < 1:
            raise ConfigError(f"known is {self.known}; it must be at least 1")
