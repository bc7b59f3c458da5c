"""The table of selections: where each takes its pairs from and what it has to know; free of torch, for configs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from viewkit.shards.errors import ConfigError

if TYPE_CHECKING:
    Select = str

Need = Literal["scores", "overlaps", "objects"]
"""What a rule reads of stored pairs. scores: the indicators and similarities that `score` stored. overlaps: of the two
crops, by their recipes. objects: what the views show of the image's annotated objects."""
HERE = "viewkit.pipelines.pairs.rules"


@dataclass(frozen=True)
class Selection:
    """Where a selection takes its pairs from.

    rule: of a column of stored pairs, those that this function keeps (``module:function``, as those in `rules`), of
    which one is taken uniformly. needs: what the rule reads. filters: by k_sc, for which the histograms are read where
    none is given. counted: numbers of rows that the rule reports. chooses: among several views that are sampled anew
    each epoch. by_loss: by what the framework's loss of each pair is.
    """

    rule: str | None = None
    needs: tuple[Need, ...] = ()
    filters: bool = False
    counted: tuple[str, ...] = ()
    chooses: bool = False
    by_loss: bool = False

    @property
    def stored(self) -> bool:
        return self.rule is not None

    @property
    def of_one_image(self) -> bool:
        """Whether the rule compares the two views within the frame of one image."""
        return "overlaps" in self.needs or "objects" in self.needs

    def load_rule(self) -> Callable[..., Any]:
        """The function of a selection of stored pairs."""
        assert self.rule is not None, "only stored pairs are selected by a rule"
        module, name = self.rule.split(":")
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found


SELECT: Mapping[str, Selection] = {
    "random": Selection(),
    "stored": Selection(f"{HERE}:every_pair"),
    "vs2fi": Selection(f"{HERE}:vs2fi", needs=("scores",), filters=True, counted=("relaxed_pairs",)),
    "similar": Selection(f"{HERE}:similar", needs=("scores",)),
    "overlap": Selection(f"{HERE}:overlapping", needs=("overlaps",), counted=("relaxed_pairs",)),
    "most_overlap": Selection(f"{HERE}:most_overlapping", needs=("overlaps",), counted=("relaxed_pairs",)),
    "combined": Selection(f"{HERE}:combined", needs=("overlaps", "scores"), counted=("relaxed_pairs",)),
    "oracle": Selection(f"{HERE}:oracle", needs=("objects",), counted=("relaxed_pairs", "missing_truth")),
    "hard": Selection(chooses=True, by_loss=True),
    "easy": Selection(chooses=True, by_loss=True),
    "lowest_iou": Selection(chooses=True),
}
"""Selections by name. Another one is a line here."""

if not TYPE_CHECKING:
    Select = Literal[tuple(SELECT)]


def names_of(trait: Callable[[Selection], bool]) -> str:
    """Names of the selections that have a trait, for people: ``vs2fi, similar or overlap``."""
    *names, last = (name for name, each in SELECT.items() if trait(each))
    return f"{', '.join(names)} or {last}" if names else last


def check_placebo(select: str, placebo: bool) -> None:
    """`ConfigError` where there is nothing to permute."""
    if placebo and not SELECT[select].needs:
        raise ConfigError(
            f"placebo is on and select is '{select}', which reads nothing of stored pairs that could be permuted; take "
            f"--select {names_of(lambda each: bool(each.needs))}"
        )


def check_same_image(select: str, alpha: float) -> None:
    """`ConfigError` where pairs are selected by what they show of one image, and another image would replace it."""
    if alpha and SELECT[select].of_one_image:
        raise ConfigError(
            f"select is '{select}' and alpha is {alpha}: crops of different images have no overlap; set --alpha 0"
        )
