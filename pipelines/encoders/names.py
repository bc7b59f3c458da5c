"""How frozen encoders are named, one table for every command. Free of torch, so that configs can use it."""

import re
from typing import Literal, NamedTuple

from viewkit.pipelines.weights.cards import folder_encoders
from viewkit.shards.errors import ConfigError

Precision = Literal["fp32", "fp16", "bf16"]

AnyPrecision = Literal["auto", "fp32", "fp16", "bf16"]
PRECISION_HELP = "auto (fp16 on a GPU where the weights were published for it, else fp32), fp32, fp16 or bf16"

PACKAGE = "viewkit.pipelines.encoders"


class EncoderCard(NamedTuple):
    """One kind of encoder. opened_by: ``module:function``, called with an `encoder.EncoderRequest`. form: how the name
    is written, words in capitals being the user's.

    weights: where they come from. ``artifact``: of the dataset, called like the encoder. ``published``: the library's
    cache, or --encoder-weights. ``folder``: a generator's, --weights. ``none``: nothing outside the code.
    """

    opened_by: str
    form: str
    weights: Literal["artifact", "published", "folder", "none"]

    def matches(self, name: str) -> bool:
        pattern = re.sub("[A-Z]+", "[^/]+", self.form)
        untrained = "(/random)?" if self.weights == "published" else ""
        return re.fullmatch(pattern + untrained, name) is not None


ENCODERS: dict[str, EncoderCard] = {
    "estimator": EncoderCard(f"{PACKAGE}.backbones:open_estimator", "estimator", "artifact"),
    "runs/": EncoderCard(f"{PACKAGE}.backbones:open_run", "runs/NAME", "artifact"),
    "timm:": EncoderCard(f"{PACKAGE}.libraries:open_timm", "timm:NAME", "published"),
    "open_clip:": EncoderCard(f"{PACKAGE}.libraries:open_open_clip", "open_clip:MODEL/TAG", "published"),
    "colour": EncoderCard(f"{PACKAGE}.colours:open_colours", "colour", "none"),
}
"""The encoders by the beginning of their names, one line each; docs/extend.md shows how to add one.
Those in generators' folders come from the generators' cards."""


def encoder_cards() -> dict[str, EncoderCard]:
    """Of all encoders, those in generators' folders among them."""
    in_folders = {name: EncoderCard(place, name, "folder") for name, place in folder_encoders().items()}
    return {**ENCODERS, **in_folders}


ENCODER_HELP = (
    f"{', '.join(card.form for card in ENCODERS.values())}, or {', '.join(folder_encoders())} (the image encoder in "
    "--weights)"
)


def encoder_card(name: str) -> EncoderCard:
    """The card of an encoder's name; `ConfigError` when no encoder is called like that."""
    for prefix, card in encoder_cards().items():
        if not name.startswith(prefix):
            continue
        if card.weights == "published" and name.endswith("/file"):
            raise ConfigError(
                f"encoder is '{name}', and a name no longer ends in /file; give the weights with --encoder-weights "
                f"FILE and the name as {card.form}"
            )
        if card.matches(name):
            return card
    raise ConfigError(
        f"encoder is '{name}'; it must be {', '.join(card.form for card in encoder_cards().values())}, e.g. "
        "open_clip:ViT-H-14/laion2b_s32b_b79k"
    )


def encoder_reads(name: str) -> tuple[str, ...]:
    """Artifacts of the dataset that hold the encoder's weights."""
    return (name,) if encoder_card(name).weights == "artifact" else ()


def weights_from_outside(name: str) -> bool:
    """Whether the encoder's weights lie neither in the dataset nor in the code."""
    return encoder_card(name).weights in ("published", "folder") and not name.endswith("/random")


def resolve_precision(precision: AnyPrecision, device: str, encoder: str | None = None) -> Precision:
    """What "auto" means: half precision on a GPU. An encoder trained by viewkit itself is small, and runs in fp32."""
    if precision != "auto":
        return precision
    own = encoder is not None and encoder_card(encoder).weights in ("artifact", "none")
    return "fp32" if own or not device.startswith("cuda") else "fp16"


def check_side(side_px: int | None) -> None:
    """`ConfigError` for a side that no encoder takes."""
    if side_px is not None and not 16 <= side_px <= 4096:
        raise ConfigError(f"side_px is {side_px}; it must lie in 16 ... 4096, or be left out")
