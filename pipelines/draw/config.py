"""Options of `viewkit draw`."""

from dataclasses import dataclass
from typing import Annotated

from viewkit.pipelines.engine.ranges import check_within
from viewkit.pipelines.pairs.generated import DrawnFrom
from viewkit.pipelines.views.options import SamplingOptions

MAX_ROUNDS = 10_000


@dataclass(frozen=True, kw_only=True)
class DrawConfig(SamplingOptions):
    """Draw plain pairs of views of every image, to be rated and trained on (GenView, sec. 3.2).

    View 0 follows the policy's first specification, view 1 its second, and so on in turn.
    """

    rounds: Annotated[int, "rounds of views; the trainer uses another one each epoch, so take as many as epochs"] = 100
    num_views: Annotated[int, "views per round; any two of them may become a pair"] = 2
    candidates: Annotated[
        DrawnFrom,
        "image that views are cropped from; mixed: original, generated, original ...; either: one view of two is "
        "of the generated image, whichever (all original where nothing was generated)",
    ] = "mixed"
    policy: Annotated[str, "augmentation policy, or a TOML file"] = "genview_resnet"
    side_px: Annotated[
        int | None, "side of the views that will be trained on, px: blur scales with it (default: the policy's)"
    ] = None
    seed: Annotated[int, "seed of all sampling"] = 0

    def __post_init__(self) -> None:
        check_within(1, MAX_ROUNDS, rounds=self.rounds)
        check_within(2, 64, num_views=self.num_views)
        check_within(1, 2**15, side_px=self.side_px)
        check_within(0, 2**63 - 1, seed=self.seed)
        self.check_sampling()
