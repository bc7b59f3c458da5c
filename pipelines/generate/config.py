"""Options of `viewkit generate`: the fit of the foreground component, and the generation that uses it."""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from viewkit.shards.errors import ConfigError

Precision = Literal["fp32", "fp16", "bf16"]
Sign = Literal["auto", "+", "-", "skewness", "reference"]


class Choice(NamedTuple):
    """One generator. made_by: ``module:Class`` below `generate.generators`. encoder: the one it takes when none is
    named. guidance: its scale when none is given. help: what the option's help says of it."""

    made_by: str
    encoder: str
    guidance: float
    help: str


GENERATORS: dict[str, Choice] = {
    "retrieval": Choice("retrieval:Retrieval", "estimator", 1.0, "the nearest other image of the dataset"),
    "unclip": Choice("unclip:Unclip", "unclip", 10.0, "Stable unCLIP, needs --weights"),
    "kandinsky": Choice("kandinsky:Kandinsky", "kandinsky", 4.0, "Kandinsky 2.2, needs --weights"),
    "ip-adapter": Choice(
        "ip_adapter:IpAdapter", "ip-adapter", 7.5, "Stable Diffusion with IP-Adapter, needs --weights"
    ),
}
"""The generators by name: one line each. One that shares its encoder with the foreground gets it at no extra cost."""

ENCODERS = sorted({choice.encoder for choice in GENERATORS.values()})
ENCODER_HELP = f"{', '.join(ENCODERS)}, open_clip:MODEL/WEIGHTS or timm:NAME"
GENERATOR_HELP = "; ".join(f"{name}: {choice.help}" for name, choice in GENERATORS.items())
GUIDANCE_HELP = ", ".join(f"{name} {choice.guidance:g}" for name, choice in GENERATORS.items() if choice.guidance > 1)


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What both stages need to know about the foreground."""

    encoder: Annotated[
        str | None, f"whose patch tokens tell foreground: {ENCODER_HELP} (default: the generator's own)"
    ] = None
    sample: Annotated[int, "images the foreground component is fitted on, those with the smallest key hashes"] = 10_000
    share: Annotated[float, "share of the sample's patch tokens that counts as foreground"] = 0.40
    sign: Annotated[
        Sign,
        "which end of the component is foreground: auto (centre against border), +, -, skewness (the rarer end), or "
        "reference (the end the paper took, for its ViT-H/14)",
    ] = "auto"
    precision: Annotated[
        Precision, "precision of the generator's networks; fp16 or bf16 is several times faster on a GPU"
    ] = "fp32"

    def __post_init__(self) -> None:
        if self.encoder is not None and not _is_encoder(self.encoder):
            raise ConfigError(
                f"encoder is {self.encoder!r}; it must be {ENCODER_HELP}, e.g. open_clip:ViT-H-14/laion2b_s32b_b79k"
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
    """Make generated views of every image, the more noise the more foreground it shows (GenView, sec. 3.2)."""

    generator: Annotated[str, GENERATOR_HELP] = "retrieval"
    strategy: Annotated[
        Literal["adaptive", "constant", "random", "table"],
        "noise level of an image: adaptive (100 for every full fifth of foreground, at most 400), constant, random (0, "
        "100 ... 400 alike), or table (a file of your own, --levels)",
    ] = "adaptive"
    level: Annotated[int, "noise level of the strategy 'constant', 0 ... 999"] = 0
    views_per_image: Annotated[int, "generated views of every image, each with its own noise"] = 1
    steps: Annotated[int, "sampling steps of a diffusion generator"] = 20
    guidance: Annotated[
        float | None, f"guidance scale, at least 1 (1: none; default: the generator's own, {GUIDANCE_HELP})"
    ] = None
    guidance_start: Annotated[
        float, "share of the steps that pass before guidance begins (an unguided step costs half)"
    ] = 0.0
    guidance_stop: Annotated[float, "share of the steps after which guidance ends"] = 1.0
    guidance_rescale: Annotated[
        float, "how far guided outputs are brought back to their unguided spread, 0 ... 1 (less garish colours)"
    ] = 0.0
    solver: Annotated[
        Literal["checkpoint", "pndm", "dpmsolver++", "unipc", "ddim"],
        "sampler of a diffusion generator; 'checkpoint' is the one its folder names (PNDM in the published unCLIP)",
    ] = "checkpoint"
    render_px: Annotated[
        int | None,
        "side at which a diffusion generator draws, a multiple of 8 (default: the folder's own, 768 for unCLIP)",
    ] = None
    output_px: Annotated[int, "side of the stored views of a diffusion generator"] = 512
    quality: Annotated[int, "JPEG quality of the stored views of a diffusion generator, 4:4:4"] = 95
    attempts: Annotated[int, "draws of a view, each with another seed, before a broken result becomes a reject"] = 3
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.generator not in GENERATORS:
            raise ConfigError(f"generator is {self.generator!r}; choose one of {', '.join(GENERATORS)}")
        if not 0 <= self.level <= 999:
            raise ConfigError(f"level is {self.level}; noise levels lie in 0 ... 999")
        if self.guidance is not None and self.guidance < 1:
            raise ConfigError(f"guidance is {self.guidance}; it must be at least 1 (1 means none)")
        if not 0 <= self.guidance_start < self.guidance_stop <= 1:
            raise ConfigError(
                f"guidance_start is {self.guidance_start} and guidance_stop {self.guidance_stop}; they are shares of "
                "the steps, 0 <= start < stop <= 1 (--guidance 1 turns guidance off)"
            )
        if not 0 <= self.guidance_rescale <= 1:
            raise ConfigError(f"guidance_rescale is {self.guidance_rescale}; it must lie in 0 ... 1")
        for name, most in (
            ("steps", 1000),
            ("output_px", 8192),
            ("attempts", 100),
            ("quality", 100),
            ("views_per_image", 100),
        ):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise ConfigError(f"{name} is {value}; it must lie in 1 ... {most}")
        if self.render_px is not None and (self.render_px < 8 or self.render_px % 8):
            raise ConfigError(f"render_px is {self.render_px}; it must be a positive multiple of 8, e.g. 768")

    @property
    def encoder_name(self) -> str:
        return self.encoder or GENERATORS[self.generator].encoder

    @property
    def guidance_scale(self) -> float:
        return GENERATORS[self.generator].guidance if self.guidance is None else self.guidance

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
    return name in ENCODERS or (name.startswith("timm:") and name != "timm:")
