"""Options of `viewkit evaluate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, ClassVar, Literal

from viewkit.pipelines.encoders.names import ENCODER_HELP, encoder_card
from viewkit.pipelines.engine.ranges import check_above_zero, check_at_least
from viewkit.shards.errors import ConfigError

PROBES = ("knn", "linear", "sgd", "augmented", "moco_v3", "semi", "finetune")


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Measure an encoder on labelled images: probes of the frozen encoder, or fine-tuning, beside two baselines."""

    MAIN: ClassVar[tuple[str, ...]] = ("probes", "k", "shares", "tune_epochs", "baselines")

    probes: Annotated[str, f"what is measured, separated by commas: any of {', '.join(PROBES)}"] = "knn,linear"
    k: Annotated[str, "knn: numbers of neighbours, separated by commas"] = "20,200"
    tau: Annotated[float, "knn: temperature of the neighbours' votes, exp(cosine / tau)"] = 0.07
    max_iterations: Annotated[int, "linear: L-BFGS iterations at most, for each C that is tried"] = 100
    split_share: Annotated[
        float, "linear, sgd, augmented: share of each class of the training images that chooses C or the learning rate"
    ] = 0.2
    rates: Annotated[
        str, "sgd, augmented: learning rates to try at once, at 256 images a batch, scaled with the batch"
    ] = "0.01,0.03,0.1,0.3,1,3,10,30"
    epochs: Annotated[int, "sgd, augmented, moco_v3: passes over the training images"] = 90
    batch_size: Annotated[int, "sgd, augmented, moco_v3: images in a batch, at most"] = 1024
    shares: Annotated[str, "semi: shares of each class of the training images, separated by commas"] = "0.01,0.1"
    tune_epochs: Annotated[int, "semi, finetune: passes over the images"] = 20
    tune_batch_size: Annotated[int, "semi, finetune: images in a batch, at most"] = 256
    tune_lr: Annotated[float | None, "semi, finetune: the encoder's learning rate (default: its kind's)"] = None
    tune_head_lr: Annotated[float | None, "semi, finetune: the classifier's learning rate (default: its kind's)"] = None
    tune_optimiser: Annotated[
        Literal["sgd", "adamw"] | None, "semi, finetune: optimiser (default: its kind's, AdamW of ViTs, SGD of ResNets)"
    ] = None
    tune_weight_decay: Annotated[float | None, "semi, finetune: weight decay (default: the optimiser's)"] = None
    seeds: Annotated[
        int, "repetitions of every probe with randomness (all but knn and linear); more than 1 give a spread"
    ] = 1
    baselines: Annotated[bool, "also measure raw pixels and the same encoder untrained"] = True
    encoder: Annotated[str | None, f"another frozen encoder to measure beside the run's: {ENCODER_HELP}"] = None
    corruptions: Annotated[
        Literal["none", "standard", "dsf"],
        "also measure knn and linear on corrupted test images: 15 corruptions at 5 severities, or DSF's 18 at one",
    ] = "none"
    corruption_set: Annotated[
        Literal["cifar", "tiny", "imagenet"] | None,
        "whose parameters corruptions have: CIFAR-10-C's, Tiny-ImageNet-C's or ImageNet-C's (default: by the side of "
        "the run's views, 32, 64 or 224 px)",
    ] = None
    pixels_px: Annotated[int, "side of the pixel baseline's images, px"] = 16
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        if self.encoder is not None:
            encoder_card(self.encoder)
        self.chosen()
        self.neighbours()
        self.rates_tried()
        self.shares_taken()
        if self.corruptions != "none" and not {"knn", "linear"} & set(self.chosen()):
            raise ConfigError(
                f"evaluate: corruptions is '{self.corruptions}' and probes is {self.probes!r}: errors are those of knn "
                "and linear; add one of them to --probes"
            )
        if self.corruption_set is not None and self.corruptions == "none":
            raise ConfigError(
                f"evaluate: corruption_set is '{self.corruption_set}' and nothing is corrupted; add --corruptions"
            )
        if not self.tau > 0:
            raise ConfigError(f"evaluate: tau is {self.tau}; it must be above 0 (the usual value is 0.07)")
        for name in ("max_iterations", "epochs", "tune_epochs", "seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"evaluate: {name} is {getattr(self, name)}; it must be at least 1")
        for name in ("batch_size", "tune_batch_size"):
            if getattr(self, name) < 2:
                raise ConfigError(f"evaluate: {name} is {getattr(self, name)}; it must be at least 2")
        check_above_zero(tune_lr=self.tune_lr, tune_head_lr=self.tune_head_lr)
        check_at_least(0, tune_weight_decay=self.tune_weight_decay)
        if not 0 < self.split_share < 1:
            raise ConfigError(f"evaluate: split_share is {self.split_share}; it must lie between 0 and 1, e.g. 0.2")
        if not 1 <= self.pixels_px <= 128:
            raise ConfigError(f"evaluate: pixels_px is {self.pixels_px}; it must lie in 1 ... 128")
        if self.seed < 0:
            raise ConfigError(f"evaluate: seed is {self.seed}; it must be at least 0")

    def chosen(self) -> tuple[str, ...]:
        """The names in `probes`, in their order; `ConfigError` for an unknown one."""
        words = _words("probes", self.probes, ",".join(PROBES[:2]))
        for word in words:
            if word not in PROBES:
                raise ConfigError(f"evaluate: probes is {self.probes!r}; '{word}' is none of {', '.join(PROBES)}")
        return words

    def neighbours(self) -> tuple[int, ...]:
        """The numbers in `k`, in their order; `ConfigError` when one is not a whole number above 0."""
        words = _words("k", self.k, "20,200")
        if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
            raise ConfigError(f"evaluate: k is {self.k!r}; it must be whole numbers above 0, e.g. '20,200'")
        return tuple(int(word) for word in words)

    def rates_tried(self) -> tuple[float, ...]:
        """The learning rates, ascending; `ConfigError` when one is not a number above 0."""
        return tuple(sorted(_numbers("rates", self.rates, float("inf"), "'0.1,1,10'")))

    def shares_taken(self) -> tuple[float, ...]:
        """The shares of the semi-supervised probes, in their order; `ConfigError` outside 0 ... 1."""
        return _numbers("shares", self.shares, 1.0, "'0.01,0.1'")


def _words(name: str, text: str, example: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    if len(set(words)) != len(words):
        raise ConfigError(f"evaluate: {name} is {text!r}; name every one once, e.g. '{example}'")
    return words


def _numbers(name: str, text: str, below: float, example: str) -> tuple[float, ...]:
    """Numbers above 0 and below `below`."""
    values: Sequence[float]
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(isfinite(value) and 0 < value < below for value in values):
        top = f" and below {below:g}" if isfinite(below) else ""
        raise ConfigError(f"evaluate: {name} is {text!r}; it must be numbers above 0{top}, e.g. {example}")
    if len(set(values)) != len(values):
        raise ConfigError(f"evaluate: {name} is {text!r}; name every one once, e.g. {example}")
    return tuple(values)
