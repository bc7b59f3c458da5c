"""Ways of making pairs by name: what each changes of the options that all arms share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Arm:
    """options: of `viewkit pretrain`. help: how its pairs are made."""

    options: Mapping[str, Any]
    help: str


REFERENCE = "random"
ARMS: Mapping[str, Arm] = {
    REFERENCE: Arm({}, "two views sampled anew each epoch"),
    "stored": Arm({"select": "stored"}, "any of the stored pairs"),
    "vs2fi": Arm({"select": "vs2fi"}, "stored pairs that VS-2FI's filters keep"),
    "similar": Arm({"select": "similar"}, "the most similar stored pair"),
    "overlap": Arm({"select": "overlap"}, "stored pairs whose crops overlap"),
    "most_overlap": Arm({"select": "most_overlap"}, "the stored pair whose crops overlap most"),
    "combined": Arm({"select": "combined"}, "the most similar stored pair of those whose crops overlap"),
    "placebo": Arm({"select": "combined", "placebo": True}, "as combined, by what other pairs of the row are"),
    "oracle": Arm({"select": "oracle"}, "stored pairs that show the same annotated objects"),
    "jointcrop": Arm({"joint_area": 0.0}, "crop areas sampled jointly (JointCrop)"),
    "hard": Arm({"select": "hard", "views": 4}, "of four views the pair with the highest loss (Hard View Selection)"),
    "easy": Arm({"select": "easy", "views": 4}, "of four views the pair with the lowest loss"),
    "lowest_iou": Arm({"select": "lowest_iou", "views": 4}, "of four views the pair that overlaps least"),
    "dsf": Arm({"views_per_side": 2, "multi_view": "dsf"}, "two views against two, compared as distributions (DSF)"),
    "loss_avg": Arm({"views_per_side": 2, "multi_view": "loss_avg"}, "two views against two, their losses averaged"),
    "generated": Arm({"alpha": 1.0}, "one view of the image, one of its generated view (GenView)"),
    "extra": Arm({"alpha": 1.0, "generated": "extra"}, "the pair, and a generated view as one more positive (CLSP)"),
    "extra_original": Arm({"generated": "extra"}, "the pair, and a third view of the image: what `extra` costs"),
    "quality": Arm({"weights": "quality"}, "random pairs weighted by GenView's quality"),
    "stored_quality": Arm({"select": "stored", "weights": "quality"}, "stored pairs weighted by GenView's quality"),
}
"""Another one is a line here; an experiment's ``[runs.NAME]`` needs none."""
