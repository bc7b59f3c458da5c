"""Options of `viewkit generate`: the generation, and those of the foreground fit that runs before it."""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from viewkit.pipelines.encoders.names import ENCODER_HELP, PRECISION_HELP, AnyPrecision, encoder_card
from viewkit.pipelines.foreground.config import ForegroundConfig, SampleOption, ShareOption, SignOption
from viewkit.pipelines.weights.cards import GENERATORS, default_encoder
from viewkit.shards.errors import ConfigError

GENERATOR_HELP = "; ".join(
    f"{name}: {card.help}{', needs --weights' if card.needs_weights else ''}" for name, card in GENERATORS.items()
)
GUIDANCE_HELP = ", ".join(f"{name} {card.guidance:g}" for name, card in GENERATORS.items() if card.guidance > 1)

SPEEDS: dict[str, dict[str, float]] = {
    "exact": {"steps": 20, "guidance_start": 0.0, "guidance_stop": 1.0},
    "fast": {"steps": 10, "guidance_start": 0.2, "guidance_stop": 0.8},
    "fastest": {"steps": 5, "guidance_start": 0.2, "guidance_stop": 0.8},
}
"""Samplings of generator `own` by name: 40, 16, 8 passes through the network. docs/generators.md has their fidelity."""
CALIBRATED = "estimator"
"""The encoder whose embeddings levels are calibrated for."""


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Make generated views of every image, the more noise the more foreground it shows (GenView, sec. 3.2)."""

    GROUP: ClassVar[str] = "Generator"
    MAIN: ClassVar[tuple[str, ...]] = ("generator", "encoder", "sign", "strategy", "views_per_image")

    encoder: Annotated[
        str | None, f"whose patch tokens tell foreground: {ENCODER_HELP} (default: the generator's own)"
    ] = None
    sample: SampleOption = 10_000
    share: ShareOption = 0.40
    sign: SignOption = "auto"
    precision: Annotated[
        AnyPrecision, f"precision of the generator's networks and of an encoder from elsewhere: {PRECISION_HELP}"
    ] = "auto"
    generator: Annotated[str, GENERATOR_HELP] = "retrieval"
    strategy: Annotated[
        Literal["adaptive", "calibrated", "constant", "random", "spread", "table"],
        "noise level of an image: adaptive (100 for every full fifth of foreground, at most 400), calibrated (the same "
        "five steps where 'viewkit generator' has placed them), constant, random (0, 100 ... 400, equally likely), "
        "spread (0, 200 ... 999, equally likely, to be measured), or table (a file of your own, --levels)",
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
    speed: Annotated[
        Literal["exact", "fast", "fastest"] | None,
        "generator own: number and guided share of the steps by name (40, 16 or 8 passes through the network)",
    ] = None
    solver: Annotated[
        Literal["checkpoint", "pndm", "dpmsolver++", "unipc", "ddim"],
        "sampler of a diffusion generator; 'checkpoint' is the one its folder names (PNDM in the published unCLIP)",
    ] = "checkpoint"
    render_px: Annotated[
        int | None,
        "side at which a diffusion generator samples, a multiple of 8 (default: the folder's own, 768 for unCLIP)",
    ] = None
    output_px: Annotated[
        int | None,
        "side of the stored views of a diffusion generator (default: the images' own, as the next power of two, 32 ... "
        "512)",
    ] = None
    format: Annotated[Literal["jpg", "webp", "png"], "how a diffusion generator's views are stored"] = "jpg"
    quality: Annotated[int, "quality of stored JPEG (4:4:4) and WebP views, 1 ... 100"] = 95
    subset: Annotated[
        int | None, "views of so many images only, those with the smallest key hashes (default: of all)"
    ] = None
    attempts: Annotated[int, "attempts at a view, each with another seed, before a broken result becomes a reject"] = 3
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        if self.generator not in GENERATORS:
            raise ConfigError(f"generator is {self.generator!r}; choose one of {', '.join(GENERATORS)}")
        self.foreground()  # its own checks
        if self.strategy == "calibrated" and CALIBRATED not in (self.encoder_name, *GENERATORS[self.generator].reads):
            raise ConfigError(
                f"strategy is 'calibrated', generator {self.generator} and encoder {self.encoder_name}: calibrated "
                "levels are for embeddings of the estimator; use generator own, or retrieval with --encoder estimator"
            )
        self._check_speed()
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
            ("subset", 10**9),
            ("attempts", 100),
            ("quality", 100),
            ("views_per_image", 100),
        ):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise ConfigError(f"{name} is {value}; it must lie in 1 ... {most}")
        if self.render_px is not None and (self.render_px < 8 or self.render_px % 8):
            raise ConfigError(f"render_px is {self.render_px}; it must be a positive multiple of 8, e.g. 768")

    def _check_speed(self) -> None:
        if self.speed is None:
            return
        if self.generator != "own":
            raise ConfigError(
                f"speed is '{self.speed}', for generator own, and generator is {self.generator}; use --steps"
            )
        for field in fields(self):
            if field.name in SPEEDS[self.speed] and (value := getattr(self, field.name)) != field.default:
                raise ConfigError(
                    f"speed is '{self.speed}' and {field.name} is {value}, which it decides; leave one out"
                )

    def decided(self) -> "GenerateConfig":
        """The same with what `speed` decides, and without it: other words for one sampling are one identity."""
        values: dict[str, Any] = {} if self.speed is None else SPEEDS[self.speed]
        return replace(self, speed=None, **values)

    @property
    def encoder_name(self) -> str:
        return self.encoder or default_encoder(self.generator)

    @property
    def encoder_precision(self) -> AnyPrecision:
        """The generator's, for an encoder in its folder or with published weights; viewkit's own run in fp32."""
        return self.precision if encoder_card(self.encoder_name).weights in ("folder", "published") else "fp32"

    @property
    def guidance_scale(self) -> float:
        return GENERATORS[self.generator].guidance if self.guidance is None else self.guidance

    def foreground(self) -> ForegroundConfig:
        """Config of the `foreground` stage that has to run first; it keeps both signs, and `generate` takes one."""
        return ForegroundConfig(
            encoder=self.encoder_name,
            sample=self.sample,
            share=self.share,
            precision=self.encoder_precision,
            index=GENERATORS[self.generator].encoder is None,  # so that retrieval and own share one fit
        )
