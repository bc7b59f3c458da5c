"""Options of `viewkit browse`."""

from dataclasses import dataclass
from typing import Annotated

from viewkit.pipelines.engine.ranges import check_within


@dataclass(frozen=True, kw_only=True)
class BrowseConfig:
    """Write one HTML file in which pairs are looked through: plots, filters, thresholds, and the pixels of pairs."""

    points: Annotated[int, "pairs in the plots, all of an image and round together, by the hash of their keys"] = 20_000
    pairs: Annotated[int, "pairs of them that are there with pictures"] = 2000
    megabytes: Annotated[float, "what the pictures may take, MB; with large views fewer pairs have them"] = 6.0
    side_px: Annotated[int | None, "side of the views, px (default: the side they were scored or drawn for)"] = None
    policy: Annotated[
        str | None, "policy, or a TOML file, whose resizing the views have (default: the one that sampled the pairs)"
    ] = None
    thumb_px: Annotated[int, "longer side of the images beside the views, px"] = 96

    def __post_init__(self) -> None:
        check_within(1, 2_000_000, points=self.points)
        check_within(0, 100_000, pairs=self.pairs)
        check_within(0, 500, megabytes=self.megabytes)
        check_within(8, 1024, side_px=self.side_px)
        check_within(32, 256, thumb_px=self.thumb_px)
