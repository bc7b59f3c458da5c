"""Options of `viewkit audit`."""

from dataclasses import dataclass
from typing import Annotated

from viewkit.pipelines.encoders.names import ENCODER_HELP, encoder_card
from viewkit.pipelines.engine.ranges import check_above_zero, check_at_least, check_within
from viewkit.shards.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """Measure what Semantic Consistency and Alignment Level filter, and whether that is what they should (VS-2FI)."""

    images: Annotated[int, "images to measure, those with the smallest key hashes"] = 500
    rounds: Annotated[int, "rounds of candidate views of each image, from the first"] = 2
    encoder: Annotated[str, f"whose features' cosine is a naive rule to compare with: {ENCODER_HELP}"] = "estimator"
    k_sc: Annotated[
        float | None, "least Semantic Consistency of a pair, as in training (default: by --filter-share)"
    ] = None
    filter_share: Annotated[
        float | None, "share of all pairs that k_sc is to remove, found on the histograms (default: 0.08)"
    ] = None
    k_al: Annotated[float | None, "least Alignment Level; none: 7 for 12 blocks, in proportion for others"] = None
    side_px: Annotated[
        int | None, "side at which colours are measured, px; none: the side the pairs were scored at"
    ] = None
    visible_share: Annotated[float, "share of a view's area from which on an object counts as seen in it"] = 0.02
    duplicate_iou: Annotated[float, "near-duplicates: least intersection over union of the crops"] = 0.5
    duplicate_colour: Annotated[float, "near-duplicates: largest distance of the colour histograms (eq. 22)"] = 0.25
    classifier_arch: Annotated[
        str | None, "timm architecture of --classifier, where that is a weights file without a config.json"
    ] = None
    gallery: Annotated[int, "pairs shown of each range"] = 6
    tile_px: Annotated[int, "side of a view in the galleries, px"] = 96
    seed: Annotated[int, "seed of the galleries' samples"] = 0

    def __post_init__(self) -> None:
        encoder_card(self.encoder)
        check_within(1, 10**7, images=self.images)
        check_within(1, 10_000, rounds=self.rounds)
        check_within(0, 1, k_sc=self.k_sc, filter_share=self.filter_share)
        if self.k_sc is not None and self.filter_share is not None:
            raise ConfigError(
                f"k_sc is {self.k_sc:g} and filter_share is {self.filter_share:g}: one decides the other; leave one out"
            )
        check_within(0, 1, duplicate_iou=self.duplicate_iou, duplicate_colour=self.duplicate_colour)
        check_at_least(1, k_al=self.k_al)
        check_within(8, 4096, side_px=self.side_px)
        check_above_zero(visible_share=self.visible_share)
        check_within(0, 1, visible_share=self.visible_share)
        check_within(1, 50, gallery=self.gallery)
        check_within(16, 512, tile_px=self.tile_px)
        check_within(0, 2**63 - 1, seed=self.seed)
