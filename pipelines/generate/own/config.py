"""Options of `viewkit generator`; plain Python, cheap to import."""

from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from viewkit.pipelines.encoders.names import encoder_card
from viewkit.pipelines.engine.config import Group, identity_values
from viewkit.pipelines.engine.ranges import check_above_zero, check_at_least, check_within
from viewkit.pipelines.training.schedules import PRECISION_HELP, AnyPrecision
from viewkit.shards.errors import ConfigError

PresetName = Literal["pico-32", "small-32", "pico-64", "small-64", "pico-128", "small-128", "pico-256", "small-256"]
PresetChoice = Literal[
    "auto", "pico-32", "small-32", "pico-64", "small-64", "pico-128", "small-128", "pico-256", "small-256"
]
CONDITION = "estimator"
"""The encoder whose embedding a generator is conditioned on."""
MEASURING = Group("What it measures in the end")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """channels: of every stage of the network, each at half the side of the one before. attention: at which stages.

    layers: residual blocks of a stage. lr: peak learning rate, for this batch size. autoencoder: channels of the
    stages of the autoencoder in whose latents the network works, each at half the side of the one before; () for
    pixels. autoencoder_steps: of its training, which comes first.
    """

    side_px: int
    channels: tuple[int, ...]
    attention: tuple[bool, ...]
    layers: int
    steps: int
    batch_size: int
    lr: float
    autoencoder: tuple[int, ...] = ()
    autoencoder_steps: int = 0


PRESETS: dict[PresetName, Preset] = {
    # A CPU, or few images: 1.1 and 1.5 million weights.
    "pico-32": Preset(
        side_px=32, channels=(32, 64, 64), attention=(False, True, False), layers=1, steps=2000, batch_size=64, lr=1e-3
    ),
    # A GPU: 6.2 million weights.
    "small-32": Preset(
        side_px=32, channels=(64, 128, 128), attention=(False, True, False), layers=2, steps=15_000, batch_size=512,
        lr=1e-3,
    ),
    "pico-64": Preset(
        side_px=64, channels=(32, 64, 64, 64), attention=(False, False, True, False), layers=1, steps=2000,
        batch_size=32, lr=5e-4,
    ),
    "small-64": Preset(
        side_px=64, channels=(64, 128, 128, 192), attention=(False, False, True, False), layers=2, steps=20_000,
        batch_size=256, lr=5e-4,
    ),
    # In latents of 4 x 32 x 32: a twelfth of the numbers of an image of 128 px, a 48th at 256 px.
    "pico-128": Preset(
        side_px=128, channels=(32, 64, 64), attention=(False, True, False), layers=1, steps=2000, batch_size=64,
        lr=1e-3, autoencoder=(16, 32, 64), autoencoder_steps=1000,
    ),
    "small-128": Preset(
        side_px=128, channels=(64, 128, 128), attention=(False, True, False), layers=2, steps=15_000, batch_size=512,
        lr=1e-3, autoencoder=(64, 128, 128), autoencoder_steps=10_000,
    ),
    "pico-256": Preset(
        side_px=256, channels=(32, 64, 64), attention=(False, True, False), layers=1, steps=2000, batch_size=64,
        lr=1e-3, autoencoder=(16, 32, 64, 64), autoencoder_steps=1000,
    ),
    "small-256": Preset(
        side_px=256, channels=(64, 128, 128), attention=(False, True, False), layers=2, steps=15_000, batch_size=512,
        lr=1e-3, autoencoder=(64, 128, 128, 128), autoencoder_steps=10_000,
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """Train a generator of views on the images: diffusion in pixels, or above 64 px in an autoencoder's latents,
    conditioned on the estimator's noised embedding.

    A level means what it means in unCLIP, so `viewkit generate --generator own` takes GenView's levels unchanged.
    """

    GROUP: ClassVar[str] = "Training"
    MAIN: ClassVar[tuple[str, ...]] = ("preset", "steps", "batch_size", "lr")
    NOT_IN_IDENTITY: ClassVar[tuple[str, ...]] = ("compile", "tensorboard")

    preset: Annotated[
        PresetChoice,
        "network, side of the views and values of the options that are not given; auto: chosen for the number and side "
        "of the images and the machine, and said",
    ] = "auto"
    steps: Annotated[int | None, "steps in all"] = None
    batch_size: Annotated[int | None, "images in a batch"] = None
    lr: Annotated[float | None, "peak learning rate, after a warm-up of 5 % of the steps"] = None
    width: Annotated[
        int | None, "channels of the network's first stage, a multiple of 16; the others stay in proportion"
    ] = None
    autoencoder_steps: Annotated[
        int | None, "steps of the autoencoder's training, which comes first; for presets of 128 px and more"
    ] = None
    precision: Annotated[AnyPrecision, PRECISION_HELP] = "fp32"
    compile: Annotated[bool, "compile the network; the first steps take minutes, the others less time"] = False
    tensorboard: Annotated[bool, "write metrics for TensorBoard too, into tensorboard/"] = False
    held_out: Annotated[
        int,
        "images that are not trained on, at most a tenth, those with the smallest key hashes; all that is measured in "
        "the end is measured on them",
        MEASURING,
    ] = 64
    judge: Annotated[
        str, "encoder that compares views with images; one that conditions nothing: colour, runs/NAME, timm:NAME ...",
        MEASURING,
    ] = "colour"  # fmt: skip
    views: Annotated[int, "views of a held-out image at every level", MEASURING] = 2
    sampling_steps: Annotated[int, "sampling steps of these views", MEASURING] = 20
    guidance: Annotated[float, "their guidance scale, at least 1", MEASURING] = 2.0
    seed: Annotated[int, "seed of all random numbers"] = 0

    def __post_init__(self) -> None:
        any_preset: PresetName = "pico-32" if self.autoencoder_steps is None else "pico-128"
        resolve(self, any_preset if self.preset == "auto" else self.preset)


@dataclass(frozen=True, kw_only=True)
class GeneratorSettings(Preset):
    """What a generator is trained and measured with: every value known."""

    preset: PresetName
    precision: AnyPrecision
    compile: bool
    tensorboard: bool
    held_out: int
    judge: str
    views: int
    sampling_steps: int
    guidance: float
    seed: int

    def values(self) -> dict[str, Any]:
        """As JSON values for the identity: what changes the result."""
        left_out = GeneratorConfig.NOT_IN_IDENTITY + (() if self.autoencoder else ("autoencoder", "autoencoder_steps"))
        return {name: value for name, value in identity_values(self).items() if name not in left_out}


def resolve(config: GeneratorConfig, preset: PresetName) -> GeneratorSettings:
    """Every value, given or the preset's. `ConfigError` for what cannot be."""
    chosen = PRESETS[preset]
    check_within(1, 10**7, steps=config.steps, autoencoder_steps=config.autoencoder_steps)
    if config.autoencoder_steps is not None and not chosen.autoencoder:
        raise ConfigError(
            f"autoencoder_steps is {config.autoencoder_steps} and preset {preset} works in pixels; leave it out, or "
            f"take --preset {' or '.join(name for name, each in PRESETS.items() if each.autoencoder)}"
        )
    check_within(2, 65_536, batch_size=config.batch_size, views=config.views)
    check_within(8, 100_000, held_out=config.held_out)
    check_within(1, 1000, sampling_steps=config.sampling_steps)
    check_at_least(1, guidance=config.guidance)
    check_above_zero(lr=config.lr)
    check_within(0, 2**63 - 1, seed=config.seed)
    if config.width is not None and (config.width % 16 or not 16 <= config.width <= 1024):
        raise ConfigError(f"width is {config.width}; it must be a multiple of 16 in 16 ... 1024")
    check_judge(config.judge)
    given = {field.name: getattr(config, field.name) for field in fields(config) if field.name != "width"}
    values = asdict(chosen) | {name: value for name, value in given.items() if value is not None}
    if config.width is not None:
        values["channels"] = tuple(config.width * each // chosen.channels[0] for each in chosen.channels)
    return GeneratorSettings(**{**values, "preset": preset})


def check_judge(judge: str) -> None:
    """`ConfigError` for an encoder that conditions the generator, or that lies in another generator's folder."""
    card = encoder_card(judge)
    if judge == CONDITION:
        raise ConfigError(
            f"judge is '{judge}', whose embeddings condition the generator, so it would judge itself; take 'colour' or "
            "runs/NAME"
        )
    if card.weights == "folder":
        raise ConfigError(
            f"judge is '{judge}', which lies in a folder of weights; 'viewkit fidelity --encoder {judge} --weights "
            "FOLDER' judges with it"
        )
