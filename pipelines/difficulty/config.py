"""Options of `viewkit difficulty`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from viewkit.pipelines.encoders.names import ENCODER_HELP, Precision, encoder_card
from viewkit.pipelines.engine.ranges import check_at_least
from viewkit.pipelines.views.options import SamplingOptions
from viewkit.shards.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DifficultyConfig(SamplingOptions):
    """Measure how hard the pairs of a policy are: JointCrop's Statistical Difficulty Factor, and their distance."""

    MAIN: ClassVar[tuple[str, ...]] = ("encoder", "policy", "images", "rounds")

    encoder: Annotated[str, f"whose features are compared: {ENCODER_HELP}"] = "estimator"
    policy: Annotated[str, "augmentations of the pairs: a policy's name, or a TOML file"] = "simsiam"
    images: Annotated[int, "images measured at most, those with the smallest key hashes"] = 100_000
    rounds: Annotated[int, "pairs of every image"] = 1
    precision: Annotated[Precision, "precision of the encoder"] = "fp32"
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        encoder_card(self.encoder)
        check_at_least(1, images=self.images, rounds=self.rounds)
        check_at_least(0, seed=self.seed)
        self.check_sampling()
        if self.joint_views is not None:
            raise ConfigError("joint_views is of multi-crop, and difficulty measures pairs; leave it out")
