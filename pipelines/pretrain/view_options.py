"""Options of `viewkit pretrain` that say which views a step sees and how they are compared, and what excludes what."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from viewkit.pipelines.pretrain.settings import BATCH_LOSSES, FrameworkName
from viewkit.pipelines.training.ranges import check_at_least, check_within
from viewkit.shards.errors import ConfigError

Select = Literal["random", "stored", "vs2fi", "hard", "easy", "lowest_iou"]

BY_LOSS: tuple[Select, ...] = ("hard", "easy")
STORED: tuple[Select, ...] = ("stored", "vs2fi")
VIEWS = 4
"""Candidate views of a row: N = 4 in all of Hard View Selection's experiments."""
COMPARISONS = 128
"""Combinations of crops that are compared in a step (Hard View Selection, appendix G.1.1)."""

BY_COSINE: tuple[FrameworkName, ...] = ("simclr", "moco_v1", "moco_v2", "moco_v3", "byol", "simsiam")
"""Frameworks whose loss compares directions, so that mean features can stand for views."""
BY_KEYS: tuple[FrameworkName, ...] = ("moco_v1", "moco_v2", "moco_v3")
"""Frameworks with InfoNCE against keys of a momentum encoder."""
LEAST_DIM = 16
"""Width of outputs from which on DSF's expansion has six digits."""


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """Which views, how many, how selected, how compared and how weighted."""

    select: Annotated[
        Select,
        "pairs: drawn afresh; any of those that 'score' stored, or those its filters keep (vs2fi); of several views "
        "drawn afresh the pair with the worst loss (hard), the best (easy) or the least overlap (lowest_iou)",
    ] = "random"
    pairs: Annotated[str, "stored, vs2fi: column of the scored pairs; 'rescore' writes another one"] = "pairs"
    k_sc: Annotated[float, "vs2fi: least Semantic Consistency of a pair"] = 0.99
    k_al: Annotated[
        float | None, "vs2fi: least Alignment Level of a pair (default: 7/12 of the estimator's blocks)"
    ] = None
    alpha: Annotated[
        float, "probability that one of the two views, or half of several, is cut from the generated image"
    ] = 0.0
    generated: Annotated[Literal["one", "both"], "alpha: one of the two views is cut from it, or both are"] = "one"
    weights: Annotated[Literal["none", "quality"], "stored, vs2fi: weigh rows by the column 'quality'"] = "none"
    joint_area: Annotated[
        float | None, "JointCrop: beta of the joint law of a pair's crop areas, e.g. 0 (default: the policy's)"
    ] = None
    views: Annotated[
        int | None, f"hard, easy, lowest_iou: views of a row to choose from; dino: large ones (default: {VIEWS})"
    ] = None
    small_views: Annotated[
        int | None, "hard, easy with dino: small views of a row to choose from (default: twice the policy's)"
    ] = None
    comparisons: Annotated[
        int | None, f"hard, easy with dino: combinations of views compared in a step (default: {COMPARISONS})"
    ] = None
    select_side_px: Annotated[int | None, "hard, easy: side of the views that selection looks at"] = None
    select_static_colour: Annotated[bool, "hard, easy: selection looks at views of the same colours"] = False
    agreement_every: Annotated[
        int | None, "every so many steps, count how often selection without the two options above agrees"
    ] = None
    log_views: Annotated[int | None, "hard, easy: write recipes, losses and choices of every so many steps"] = None
    views_per_side: Annotated[int, "m: compare m views of a row with m others"] = 1
    multi_view: Annotated[
        Literal["loss_avg", "fea_avg", "dsf"],
        "how they are compared: mean of all losses, loss of mean features, or divergence of distributions",
    ] = "loss_avg"
    dsf_shrink: Annotated[float, "dsf: factor of the mean length before the concentration is estimated"] = 0.95
    dsf_exact: Annotated[bool, "dsf: A_p of the concentration in the divergence, instead of the mean length"] = False

    def check_views(self, framework: FrameworkName, own: Mapping[str, Any], side_px: int) -> None:
        """`ConfigError` for options that exclude each other or the framework, or that are given in vain.

        own: the framework's own options. Fills in the defaults of `views` and `comparisons` where they are used.
        """
        check_at_least(1, k_al=self.k_al, agreement_every=self.agreement_every, log_views=self.log_views)
        check_within(0, 1, alpha=self.alpha, k_sc=self.k_sc)
        check_within(-100, 100, joint_area=self.joint_area)
        check_within(1, 64, views_per_side=self.views_per_side, views=self.views)
        check_within(1, 48, small_views=self.small_views)
        check_within(1, 1_000_000, comparisons=self.comparisons)
        check_within(0.01, 0.999, dsf_shrink=self.dsf_shrink)
        check_within(4, side_px, select_side_px=self.select_side_px)
        self._check_given()
        multi_crop = "num_globals" in own
        if self.select in BY_LOSS:
            self._check_by_loss(framework, multi_crop)
        elif self.select == "lowest_iou":
            if multi_crop:
                raise ConfigError(f"select is 'lowest_iou', which gives pairs, and {framework} takes several crops")
            if self.alpha:
                raise ConfigError(
                    f"select is 'lowest_iou' and alpha is {self.alpha}: crops of different images have no overlap; set "
                    "--alpha 0"
                )
        if self.select in (*BY_LOSS, "lowest_iou"):
            object.__setattr__(self, "views", VIEWS if self.views is None else self.views)
            self._check_count(multi_crop)
        if multi_crop and self.select in STORED:
            raise ConfigError(f"select is '{self.select}', which gives pairs, and {framework} takes several crops")
        if self.weights == "quality":
            self._check_weights(framework)
        self._check_sides(framework, own, multi_crop)

    def _check_given(self) -> None:
        """Nothing that is given is without effect."""
        chooses, by_loss = self.select in (*BY_LOSS, "lowest_iou"), self.select in BY_LOSS
        looks = self.select_side_px is not None or self.select_static_colour
        for name, used, needs in (
            ("views", chooses, "--select hard, easy or lowest_iou"),
            ("small_views", by_loss, "--select hard or easy"),
            ("comparisons", by_loss, "--select hard or easy"),
            ("select_side_px", by_loss, "--select hard or easy"),
            ("select_static_colour", by_loss, "--select hard or easy"),
            ("log_views", by_loss, "--select hard or easy"),
            ("agreement_every", by_loss and looks, "--select-side-px or --select-static-colour"),
            ("joint_area", self.select not in STORED, "views drawn afresh; 'score' drew the stored ones"),
            ("dsf_exact", self.multi_view == "dsf", "--multi-view dsf"),
            ("generated", self.alpha > 0 or self.generated == "one", "--alpha above 0"),
        ):
            value = getattr(self, name)
            if not used and value is not None and value is not False:
                raise ConfigError(f"{name} is {value} and select is '{self.select}': it needs {needs}")

    def _check_by_loss(self, framework: FrameworkName, multi_crop: bool) -> None:
        if framework in BATCH_LOSSES:
            raise ConfigError(
                f"select is '{self.select}' and framework is '{framework}': its loss is one number of a whole batch, "
                "so no row has a worst pair; take another framework, or --select lowest_iou"
            )
        if framework == "swav":
            raise ConfigError(
                f"select is '{self.select}' and framework is 'swav': its targets are shares of a whole batch and "
                "change with every other row's choice; take another framework"
            )
        if self.views_per_side > 1 or self.multi_view != "loss_avg":
            raise ConfigError(
                f"select is '{self.select}', which gives one pair, with views_per_side {self.views_per_side} and "
                f"multi_view '{self.multi_view}'; leave these out"
            )
        if not multi_crop and (self.small_views is not None or self.comparisons is not None):
            raise ConfigError(f"small_views and comparisons are of multi-crop, and {framework} takes pairs")
        if multi_crop and (self.select_side_px is not None or self.agreement_every is not None):
            raise ConfigError(
                f"select_side_px and agreement_every are of pairs, and {framework} takes crops of two sides; leave "
                "them out"
            )

    def _check_count(self, multi_crop: bool) -> None:
        assert self.views is not None
        if multi_crop:
            if self.views % 2:
                raise ConfigError(
                    f"views is {self.views}: half of the large views follow each law; take an even number"
                )
            object.__setattr__(self, "comparisons", COMPARISONS if self.comparisons is None else self.comparisons)
        elif self.views < 3:
            raise ConfigError(
                f"views is {self.views} and select is '{self.select}': of {self.views} views there is one pair and "
                "nothing to choose; take at least 3"
            )

    def _check_weights(self, framework: FrameworkName) -> None:
        if self.select not in STORED:
            raise ConfigError(
                f"weights is 'quality' and select is '{self.select}': quality is known of stored pairs only; set "
                "--select stored or vs2fi"
            )
        if framework in BATCH_LOSSES:
            raise ConfigError(
                f"weights is 'quality' and framework is '{framework}': its loss is one number of a whole batch, so no "
                "row can be weighed; take another framework"
            )

    def _check_sides(self, framework: FrameworkName, own: Mapping[str, Any], multi_crop: bool) -> None:
        if self.views_per_side == 1 and self.multi_view == "loss_avg":
            return
        what = f"multi_view is '{self.multi_view}' with views_per_side {self.views_per_side}"
        if multi_crop:
            raise ConfigError(f"{what}, and {framework} has several crops already; take a framework of pairs")
        if self.select != "random":
            raise ConfigError(f"{what} and select is '{self.select}', which gives one pair; take --select random")
        if self.multi_view == "fea_avg" and framework not in BY_COSINE:
            raise ConfigError(f"{what}: mean features need a loss of directions, one of {', '.join(BY_COSINE)}")
        if self.multi_view == "dsf":
            if framework not in BY_KEYS:
                raise ConfigError(f"{what}: it needs keys of a momentum encoder, one of {', '.join(BY_KEYS)}")
            if own.get("decoupled"):
                raise ConfigError(f"{what} has a denominator of its own; leave --decoupled out")
            if own["dim"] < LEAST_DIM:
                raise ConfigError(f"{what} and dim is {own['dim']}; it needs at least {LEAST_DIM}")
