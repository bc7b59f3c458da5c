"""How a run's pairs were made: the options that say so, whether they are plain, and the words for people."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from viewkit.pipelines.pairs.options import COMPARISONS, FILTER_SHARE, ORACLE_SHARE, ViewOptions
from viewkit.pipelines.training.multi_view import MULTI_VIEW, multi_view_option_names

METHOD = (*(field.name for field in fields(ViewOptions)), *multi_view_option_names())
"""Fields of a run's config that say how pairs are made; two runs that differ in these alone are compared."""

DEFAULTS: Mapping[str, Any] = {
    **{field.name: field.default for field in fields(ViewOptions)},
    **{option.name: value for entry in MULTI_VIEW.values() for option, value in entry.options.items()},
    "multi_view": "loss_avg",
}
RESOLVED = {"filter_share": FILTER_SHARE, "oracle_share": ORACLE_SHARE, "comparisons": COMPARISONS}
"""What a selection has that was given none."""
NOT_PAIRS = ("crop", "norms_per_view")
"""Of the method what leaves random pairs random: by which rule a crop's area is kept, and what batch norms see."""
WATCHED = ("agreement_every", "log_views")
"""What is recorded of pairs on the way."""

CHANGED = {
    "joint_area": "joint crops", "joint_blur": "joint blur", "joint_brightness": "joint brightness",
    "joint_contrast": "joint contrast", "centre_suppression": "centre suppression", "crop_box": "crop box",
    "max_iou": "overlap at most", "max_iou_end": "at the end",
}  # fmt: skip
"""Options with a number that make pairs other than plain ones, in words."""


def changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the method -> their values where these are not the defaults. An option that a run's config lacks is
    younger than the run, which is as its default has it."""
    found = {name: config.get(name, DEFAULTS[name]) for name in METHOD}
    return {name: value for name, value in found.items() if value not in (DEFAULTS[name], RESOLVED.get(name))}


def is_random(config: Mapping[str, Any]) -> bool:
    """Whether a run trained on plain random pairs of the images themselves."""
    return not changes(config).keys() - {*NOT_PAIRS, *WATCHED}


def method_of(config: Mapping[str, Any]) -> str:
    """How a run's pairs were made, e.g. ``simsiam, vs2fi, generated 0.5`` (the probability of such a view)."""
    left = {name: value for name, value in changes(config).items() if name not in WATCHED}
    words = [config["framework"], config["select"]]
    left.pop("select", None)
    if left.pop("placebo", False):
        words.append("placebo")
    if (views := left.pop("views", None)) is not None:
        words.append(f"of {views} views")
    alpha, of = left.pop("alpha", 0), left.pop("generated", "one")
    if alpha:
        words.append(f"generated {alpha:g}" + ("" if of == "one" else f" ({of})"))
    elif of == "extra":
        words.append("a third view of the image")
    if "weights" in left:
        words.append(f"{left.pop('weights')} weights")
    words += [f"{what} {left.pop(name):g}" for name, what in CHANGED.items() if name in left]
    if left.pop("max_iou_alternating", False):
        words.append("alternating")
    if "views_per_side" in left or "multi_view" in left:
        left.pop("multi_view", None)
        m = left.pop("views_per_side", 1)
        words.append(f"{config['multi_view']} of {m} + {m} views")
    words += [name if value is True else f"{name} {value}" for name, value in left.items()]
    return ", ".join(words)
