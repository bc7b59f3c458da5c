"""Options of `viewkit generate`: the fit of the foreground component, and the generation that uses it."""

from dataclasses import dataclass
from typing import Annotated, Literal

from viewkit.shards.errors import ConfigError

Precision = Literal["fp32", "fp16", "bf16"]
Sign = Literal["auto", "+", "-", "skewness"]
GeneratorName = Literal["retrieval", "unclip"]

ENCODER_OF: dict[str, str] = {"retrieval": "estimator", "unclip": "unclip"}
"""The encoder a generator takes when none is named; for `unclip` it is the one that conditions it, at no extra cost."""


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What both stages need to know about the foreground."""

    encoder: Annotated[
        str | None,
        "whose patch tokens tell foreground: estimator, unclip, open_clip:MODEL/WEIGHTS or timm:NAME (default: the "
        "generator's own)",
    ] = None
    sample: Annotated[int, "images the foreground component is fitted on, those with the smallest key hashes"] = 10_000
    share: Annotated[float, "share of the sample's patch tokens that counts as foreground"] = 0.40
    sign: Annotated[
        Sign,
        "which end of the component is foreground: auto (centre against border), +, - or skewness (the rarer end)",
    ] = "auto"
    precision: Annotated[
        Precision, "precision of the unCLIP networks; fp16 or bf16 is several times faster on a GPU"
    ] = "fp32"

    def __post_init__(self) -> None:
        if self.encoder is not None and not _is_encoder(self.encoder):
            raise ConfigError(
                f"encoder is {self.encoder!r}; it must be estimator, unclip, open_clip:MODEL/WEIGHTS "
                "(e.g. open_clip:ViT-H-14/laion2b_s32b_b79k) or timm:NAME"
            )
        if self.sample < 10:
            raise ConfigError(f"sample is {self.sample}; a component needs at least 10 images")
        if not 0 < self.share < 1:
            raise ConfigError(f"share is {self.share}; it must lie between 0 and 1, e.g. 0.40")


@dataclass(frozen=True, kw_only=True)
class ForegroundConfig(FitOptions):
    """Fit the foreground component over patch tokens (GenView, sec. 3.2)."""

    index: Annotated[bool, "also store the embedding of every image, which the generator 'retrieval' searches"] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder is None:
            raise ConfigError("encoder is not set; name one, e.g. estimator")

    @property
    def encoder_name(self) -> str:
        assert self.encoder is not None
        return self.encoder


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(FitOptions):
    """Make one generated view of every image, the more noise the more foreground it shows (GenView, sec. 3.2)."""

    generator: Annotated[
        GeneratorName,
        "retrieval: the nearest other image of the dataset; unclip: Stable unCLIP, needs --weights FOLDER",
    ] = "retrieval"
    strategy: Annotated[
        Literal["adaptive", "constant", "random"],
        "noise level of an image: adaptive (100 for every full fifth of foreground, at most 400), constant, or random "
        "(0, 100 ... 400 alike)",
    ] = "adaptive"
    level: Annotated[int, "noise level of the strategy 'constant', 0 ... 999"] = 0
    steps: Annotated[int, "unclip: sampling steps"] = 20
    guidance: Annotated[float, "unclip: guidance scale, at least 1 (1: none)"] = 10.0
    solver: Annotated[
        Literal["checkpoint", "pndm", "dpmsolver++", "unipc", "ddim"],
        "unclip: sampler; 'checkpoint' is the one the folder names (PNDM in the published weights)",
    ] = "checkpoint"
    render_px: Annotated[
        int | None, "unclip: side at which it draws, a multiple of 8 (default: the folder's own, 768)"
    ] = None
    output_px: Annotated[int, "unclip: side of the stored views"] = 512
    attempts: Annotated[int, "draws of an image, each with another seed, before a broken result becomes a reject"] = 3
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.level <= 999:
            raise ConfigError(f"level is {self.level}; noise levels lie in 0 ... 999")
        if self.guidance < 1:
            raise ConfigError(f"guidance is {self.guidance}; it must be at least 1 (1 means none)")
        for name, value in (("steps", self.steps), ("output_px", self.output_px), ("attempts", self.attempts)):
            if value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        if self.attempts > 100:
            raise ConfigError(f"attempts is {self.attempts}; it must be at most 100")
        if self.render_px is not None and (self.render_px < 8 or self.render_px % 8):
            raise ConfigError(f"render_px is {self.render_px}; it must be a positive multiple of 8, e.g. 768")

    @property
    def encoder_name(self) -> str:
        return self.encoder or ENCODER_OF[self.generator]

    def foreground(self) -> ForegroundConfig:
        """Config of the `foreground` stage that has to run first."""
        return ForegroundConfig(
            encoder=self.encoder_name,
            sample=self.sample,
            share=self.share,
            sign=self.sign,
            precision=self.precision,
            index=self.generator == "retrieval",
        )


def _is_encoder(name: str) -> bool:
    if name.startswith("open_clip:"):
        model, _, weights = name.removeprefix("open_clip:").partition("/")
        return bool(model and weights)
    return name in ENCODER_OF.values() or (name.startswith("timm:") and name != "timm:")
