"""Options of the views that a step gets of every row: how many, how selected, of which image, and their weights."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from viewkit.pipelines.engine.ranges import check_above_zero, check_at_least, check_within
from viewkit.pipelines.pairs.generated import GENVIEW, PAIR, check_genview
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.pairs.selections import SELECT, Select, Selection, check_placebo, check_same_image, names_of
from viewkit.pipelines.views.options import AUGMENTATION, PARAMETERS, SamplingOptions
from viewkit.pipelines.views.policy import IouCeiling
from viewkit.shards.errors import ConfigError

SAMPLED_BY_SCORE = "views sampled anew; 'score' sampled the stored ones"
VIEWS = 4
"""Candidate views of a row: N = 4 in all of Hard View Selection's experiments."""
COMPARISONS = 128
"""Combinations of crops that are compared in a step (Hard View Selection, appendix G.1.1)."""

FILTER_SHARE = 0.08
"""What k_SC = 0.99 removes on ImageNet (VS-2FI, sec. 4.5; 0.12 on COCO). The share carries over to other images, the
0.99 does not: an estimator that tells C equal groups apart and nothing finer gives no pair more than 1 / (1 + 1/C)."""
ORACLE_SHARE = 0.5
"""Least common content of a pair that the oracle keeps."""

STORED = names_of(lambda each: each.stored)


@dataclass(frozen=True, kw_only=True)
class ViewOptions(SamplingOptions):
    """Which views, how many, how selected and how weighted."""

    GROUP: ClassVar[str] = "Views and pairs"

    select: Annotated[
        Select,
        "pairs: sampled anew each epoch; any of those that 'score' or 'draw' stored, or of a row's stored pairs those "
        "that both filters keep (vs2fi), the most similar one (similar), any whose crops overlap (overlap), the one "
        "whose crops overlap most (most_overlap), the most similar of those that overlap (combined), or those that "
        "show the same annotated objects (oracle); of several views sampled anew, the pair with the highest loss "
        "(hard), the lowest (easy) or the least overlap (lowest_iou)",
    ] = "random"
    pairs: Annotated[str, "stored pairs: column of them; 'rescore' and 'draw' write other ones"] = PAIRS
    other_policy: Annotated[bool, "stored pairs: allow those sampled by another policy than --policy"] = False
    k_sc: Annotated[
        float | None, "vs2fi: minimum Semantic Consistency of a pair; the paper's is 0.99 (default: by --filter-share)"
    ] = None
    filter_share: Annotated[
        float | None,
        "vs2fi: share of all pairs that k_sc is to remove, found on the histograms (default: 0.08, what the paper's "
        "k_sc removes on ImageNet)",
    ] = None
    k_al: Annotated[
        float | None, "vs2fi: minimum Alignment Level of a pair (default: 7/12 of the estimator's blocks)"
    ] = None
    oracle_share: Annotated[
        float | None,
        f"oracle: least common content of a pair, the smaller of the shares of the two views that each object takes, "
        f"summed (default: {ORACLE_SHARE:g})",
    ] = None
    placebo: Annotated[
        bool,
        "what a selection of stored pairs reads of them is permuted within every row first: it removes as many pairs "
        "and knows nothing",
    ] = False
    crop_box: Annotated[
        float | None,
        "ContrastiveCrop: centres of crops lie in the box where the heat map of a frozen encoder exceeds this share of "
        "its range: 0.1 for ResNets, 0.3 to 0.5 for ViTs",
        AUGMENTATION,
    ] = None
    crop_box_encoder: Annotated[
        str, "crop_box: whose heat map: estimator, runs/NAME, or timm:NAME/random", AUGMENTATION
    ] = "estimator"
    alpha: Annotated[
        float, "probability that one of the two views, or half of several, is cropped from the generated image"
    ] = 0.0
    generated: Annotated[
        Literal["one", "both", "extra"],
        "alpha: one of the two views is cropped from the generated image, or both are; extra: the pair stays, and a "
        "third view, cropped from it with probability alpha, is one more positive of the first (CLSP)",
    ] = "one"
    genview: Annotated[str, "alpha: column of generated views"] = GENVIEW
    weights: Annotated[
        Literal["none", "quality"],
        "weight rows by GenView's quality of their pair: stored ones by the column of qualities, others by the encoder "
        "and component of 'foreground --of views'",
    ] = "none"
    quality_column: Annotated[str, "stored pairs with weights: column of their qualities"] = "quality"
    max_iou: Annotated[
        float | None,
        "sample pairs again whose crops overlap more than this in the first epoch (default: the policy's)",
    ] = None
    max_iou_end: Annotated[float | None, "max_iou in the last epoch, linear in between (default: max_iou)"] = None
    max_iou_alternating: Annotated[bool, "max_iou: in every other epoch only, half of the images in each"] = False
    views: Annotated[
        int | None,
        f"hard, easy, lowest_iou: candidate views per row; with multi-crop, the large ones (default: {VIEWS})",
    ] = None
    small_views: Annotated[
        int | None, "hard, easy with multi-crop: small candidate views per row (default: twice the policy's)"
    ] = None
    comparisons: Annotated[
        int | None,
        f"hard, easy with multi-crop: combinations of views compared in a step (default: {COMPARISONS})",
    ] = None
    select_side_px: Annotated[int | None, "hard, easy: side of the views that selection compares"] = None
    select_static_colour: Annotated[bool, "hard, easy: selection compares views of the same colours"] = False
    agreement_every: Annotated[
        int | None, "every so many steps, count how often selection without the two options above agrees"
    ] = None
    log_views: Annotated[int | None, "hard, easy: write recipes, losses and choices of every so many steps"] = None
    views_per_side: Annotated[int, "m: compare m views of a row with m others"] = 1
    norms_per_view: Annotated[
        bool, "views_per_side: batch norms see every view alone, one pass each, not all views of a side together"
    ] = False

    @property
    def selection(self) -> Selection:
        return SELECT[self.select]

    def iou_ceiling(self) -> IouCeiling | None:
        """The bound on a pair's overlap that the options ask for; None where they leave it to the policy."""
        if self.max_iou is None:
            return None
        end = self.max_iou if self.max_iou_end is None else self.max_iou_end
        return IouCeiling(start=self.max_iou, end=end, alternating=self.max_iou_alternating)

    def check_views(self, side_px: int) -> None:
        """`ConfigError` for values out of range, and for options that would have no effect.

        What excludes the framework is checked where that is known.
        """
        check_at_least(1, k_al=self.k_al, agreement_every=self.agreement_every, log_views=self.log_views)
        check_within(0, 1, alpha=self.alpha, k_sc=self.k_sc, filter_share=self.filter_share)
        if self.k_sc is not None and self.filter_share is not None:
            raise ConfigError(
                f"k_sc is {self.k_sc:g} and filter_share is {self.filter_share:g}: one decides the other; leave one out"
            )
        if self.oracle_share is not None:
            check_above_zero(oracle_share=self.oracle_share)
            check_within(0, 1, oracle_share=self.oracle_share)
        self.check_sampling()
        check_within(0, 1, max_iou=self.max_iou, max_iou_end=self.max_iou_end)
        check_within(1, 64, views_per_side=self.views_per_side, views=self.views)
        check_within(1, 48, small_views=self.small_views)
        check_within(1, 1_000_000, comparisons=self.comparisons)
        check_within(4, side_px, select_side_px=self.select_side_px)
        self._check_given()
        if self.selection.chooses and self.betas():
            self.refuse_joint(", ".join(name for name in PARAMETERS if getattr(self, name) is not None))
        check_placebo(self.select, self.placebo)
        check_same_image(self.select, self.alpha)
        if self.select == "lowest_iou":
            self.refuse_generated("select is 'lowest_iou'")
        if self.max_iou is not None:
            self.refuse_ceiling(f"max_iou is {self.max_iou}")
        if self.weights == "quality" and self.selection.by_loss:
            raise ConfigError(
                f"weights is 'quality' and select is '{self.select}': rows would be weighted for what their pair was "
                f"not selected by; take --select random, {STORED}"
            )
        check_genview(self.genview)
        self._check_box()

    @property
    def num_views(self) -> int:
        """Of a row, in a training on pairs: m + m, or a pair and one more; where some are selected, the candidates."""
        if self.generated == "extra":
            return PAIR + 1
        return PAIR * self.views_per_side if self.views is None else self.views

    def _check_box(self) -> None:
        if self.crop_box is None:
            return
        if not 0 <= self.crop_box < 1:
            raise ConfigError(f"crop_box is {self.crop_box}; it must lie in 0 ... 1, below 1, e.g. 0.1")
        if self.alpha:
            raise ConfigError(
                f"crop_box is {self.crop_box} and alpha is {self.alpha}: boxes are those of the images, and generated "
                "ones are others; set --alpha 0"
            )

    @property
    def rates_fresh(self) -> bool:
        """Whether the trainer itself computes the quality of pairs, which are sampled anew each epoch."""
        return self.weights == "quality" and not self.selection.stored

    def refuse_generated(self, what: str) -> None:
        """`ConfigError` where overlaps matter, and pairs are of two images."""
        if self.alpha:
            raise ConfigError(
                f"{what} and alpha is {self.alpha}: crops of different images have no overlap; set --alpha 0"
            )

    def refuse_ceiling(self, what: str) -> None:
        """`ConfigError` for a ceiling on overlaps where pairs are compared that it does not bound, or that are crops of
        two images."""
        self.refuse_generated(what)
        if self.selection.chooses or self.num_views > PAIR:
            raise ConfigError(
                f"{what}, and of several views any two may be compared: the ceiling holds for views (0, 1), "
                "(2, 3) ... alone; take pairs of two views and --select random"
            )

    def refuse_joint(self, what: str) -> None:
        """`ConfigError` for joint distributions of views of which any two may be selected."""
        raise ConfigError(
            f"select is '{self.select}' and {what} is joint: of several views any two may become the pair, and only "
            "views (0, 1), (2, 3) ... are sampled jointly; take --select random, or independent views"
        )

    def _check_given(self) -> None:
        """No option is given without effect."""
        chooses, by_loss, stored = self.selection.chooses, self.selection.by_loss, self.selection.stored
        previews = self.select_side_px is not None or self.select_static_colour
        for name, used, needs in (
            ("views", chooses, "--select hard, easy or lowest_iou"),
            ("small_views", by_loss, "--select hard or easy"),
            ("comparisons", by_loss, "--select hard or easy"),
            ("select_side_px", by_loss, "--select hard or easy"),
            ("select_static_colour", by_loss, "--select hard or easy"),
            ("log_views", by_loss, "--select hard or easy"),
            ("agreement_every", by_loss and previews, "--select-side-px or --select-static-colour"),
            *((name, not self.selection.stored, SAMPLED_BY_SCORE) for name in (*self.CHANGES, "crop_box")),
            ("crop_box_encoder", self.crop_box is not None or self.crop_box_encoder == "estimator", "--crop-box"),
            ("pairs", stored or self.pairs == PAIRS, f"--select {STORED}"),
            *((name, self.selection.filters, "--select vs2fi") for name in ("k_sc", "filter_share", "k_al")),
            ("oracle_share", "objects" in self.selection.needs, "--select oracle"),
            ("other_policy", self.selection.stored, f"--select {STORED}"),
            ("genview", self.alpha > 0 or self.genview == GENVIEW, "--alpha above 0"),
            ("quality_column", stored or self.quality_column == "quality", f"--select {STORED}"),
            ("max_iou", not self.selection.stored, "views sampled anew; 'score' sampled the stored ones"),
            ("max_iou_end", self.max_iou is not None, "--max-iou"),
            ("max_iou_alternating", self.max_iou is not None, "--max-iou"),
            ("norms_per_view", self.views_per_side > 1, "--views-per-side above 1"),
            ("generated", self.alpha > 0 or self.generated != "both", "--alpha above 0"),
        ):
            value = getattr(self, name)
            if not used and value is not None and value is not False:
                raise ConfigError(f"{name} is {value} and select is '{self.select}': it needs {needs}")
