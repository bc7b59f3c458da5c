"""What a policy says: the specification of every view, what is joint between two views, and how pixels are normalised.

Policies are data. A user's own is a TOML file of the same fields (`read_policy`); `base` starts from a named one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from viewkit.pipelines.engine.config import load_toml, make_nested
from viewkit.pipelines.engine.ranges import check_above_zero, check_within
from viewkit.shards.errors import ConfigError

Pair = tuple[float, float]
Colour = tuple[float, float, float]
Interpolation = Literal["bilinear", "bicubic"]
JointParameter = Literal["area", "sigma", "brightness", "contrast"]
JointMix = Literal["one", "all"]
CropRule = Literal["exact", "torchvision"]

IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_STD: Colour = (0.229, 0.224, 0.225)


def colour(values: Sequence[float]) -> Colour:
    """Three numbers: red, green, blue."""
    red, green, blue = values
    return float(red), float(green), float(blue)


@dataclass(frozen=True, kw_only=True)
class ViewSpec:
    """The distribution of one view. Defaults are MoCo v3's first view for ResNet, without blur."""

    area: Annotated[Pair, "uniform range of the crop's share of the image's area"] = (0.2, 1.0)
    aspect: Annotated[Pair, "log-uniform range of the crop's width / height, in pixels"] = (3 / 4, 4 / 3)
    centre: Annotated[
        float,
        "positions follow Beta(centre, centre): 1 uniform, below 1 centre-suppressed (Peng et al. 2022, sec. 3.3)",
    ] = 1.0
    p_flip: Annotated[float, "probability of mirroring left to right"] = 0.5
    p_jitter: Annotated[float, "probability of colour jitter"] = 0.8
    brightness: Annotated[float, "factor uniform in 1 -+ this, clipped at 0"] = 0.4
    contrast: Annotated[float, "as brightness"] = 0.4
    saturation: Annotated[float, "as brightness"] = 0.2
    hue: Annotated[float, "shift uniform in -+ this, in turns"] = 0.1
    p_grey: Annotated[float, "probability of grey"] = 0.2
    grey_first: Annotated[bool, "grey before the jitter (MoCo v1) instead of after it"] = False
    p_blur: Annotated[float, "probability of Gaussian blur"] = 0.0
    sigma: Annotated[Pair, "uniform range of the blur's standard deviation, px at the view's side"] = (0.1, 2.0)
    p_solarize: Annotated[float, "probability of solarizing"] = 0.0
    threshold: Annotated[float, "solarize inverts values (0-1) from here on"] = 128 / 255
    p_randaugment: Annotated[float, "probability of RandAugment"] = 0.0
    magnitude: Annotated[int, "RandAugment's magnitude, 0 ... 30 (Cubuk et al. 2020)"] = 9
    side_px: Annotated[int | None, "side of this view where it differs from the policy's (multi-crop)"] = None

    def __post_init__(self) -> None:
        _check_range(1, area=self.area)
        _check_range(1000, aspect=self.aspect, sigma=self.sigma)
        check_above_zero(centre=self.centre)
        check_within(0, 1, centre=self.centre, threshold=self.threshold)
        for name in ("p_flip", "p_jitter", "p_grey", "p_blur", "p_solarize", "p_randaugment"):
            check_within(0, 1, **{name: getattr(self, name)})
        check_within(0, 10, brightness=self.brightness, contrast=self.contrast, saturation=self.saturation)
        check_within(0, 0.5, hue=self.hue)
        check_within(0, 30, magnitude=self.magnitude)
        check_within(1, 2**15, side_px=self.side_px)


def factor_range(spec: ViewSpec, name: str) -> Pair:
    """Range of a jitter factor: 1 -+ its strength, cut at 0."""
    strength = float(getattr(spec, name))
    return max(0.0, 1 - strength), 1 + strength


def parameter_range(spec: ViewSpec, parameter: JointParameter) -> Pair:
    """Range of what can be joint."""
    if parameter in ("brightness", "contrast"):
        return factor_range(spec, parameter)
    low, high = getattr(spec, parameter)
    return float(low), float(high)


def _check_range(highest: float, **ranges: Pair) -> None:
    """`ConfigError` unless both ends lie above 0 and up to `highest`, the lower end first."""
    for name, (low, high) in ranges.items():
        if not 0 < low <= highest or not 0 < high <= highest:
            raise ConfigError(f"{name} is {[low, high]}; both ends must lie above 0, up to {highest:g}")
        if low > high:
            raise ConfigError(f"{name} is {[low, high]}; its lower end lies above its upper end")


@dataclass(frozen=True, kw_only=True)
class JointSpec:
    """JC(beta) on the ratio of one parameter of two views (Zhang et al. 2025, Alg. 1).

    Views (0, 1), (2, 3), ... are the pairs. A pair whose two specifications give the parameter different ranges is
    refused (`Policy.check_joint`): a ratio of two ranges has no JC(beta).
    """

    parameter: Annotated[JointParameter, "what is sampled jointly"] = "area"
    beta: Annotated[float, "the smaller, the further the ratio is from 1; 0: uniform log ratio"] = 0.0
    probability: Annotated[float, "share of pairs that it is used on (appendix F)"] = 1.0
    specs: Annotated[
        tuple[int, ...],
        "indices of the view specifications it is used on (appendix D: global or local views); empty: all",
    ] = ()

    def __post_init__(self) -> None:
        check_within(-100, 100, beta=self.beta)
        check_within(0, 1, probability=self.probability)
        for spec in self.specs:
            check_within(0, 2**20, specs=spec)


@dataclass(frozen=True, kw_only=True)
class IouCeiling:
    """Pairs whose crops overlap more than a bound are sampled again (Hard View Selection, sec. 5.2)."""

    start: Annotated[float, "bound in the first round; linear in between, decreasing too"] = 0.30
    end: Annotated[float, "bound in the last round"] = 0.35
    tries: Annotated[int, "samples at most; then the pair with the least overlap is taken"] = 512
    alternating: Annotated[bool, "bound every row in every other round only, half of the rows in each"] = False

    def __post_init__(self) -> None:
        check_within(0, 1, start=self.start, end=self.end)
        check_within(1, 4096, tries=self.tries)

    def bound(self, round: int, rounds: int) -> float:
        """The bound in a round of 0 ... rounds - 1."""
        return self.start + (self.end - self.start) * (round / (rounds - 1) if rounds > 1 else 0.0)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A complete augmentation policy."""

    name: Annotated[str, "for messages and identities"]
    views: Annotated[tuple[ViewSpec, ...], "specifications T1, T2, ...; views follow them in turn"]
    side_px: Annotated[int, "side of the views"] = 224
    interpolation: Annotated[Interpolation, "of the resize"] = "bilinear"
    mean: Annotated[Colour, "subtracted from float values in 0-1: red, green, blue"] = IMAGENET_MEAN
    std: Annotated[Colour, "what these are then divided by"] = IMAGENET_STD
    num_views: Annotated[int, "views per row"] = 2
    joint: Annotated[tuple[JointSpec, ...], "joint distributions of a pair's views"] = ()
    joint_mix: Annotated[
        JointMix, "one: at most one joint distribution per pair, chosen by their probabilities; all: each independently"
    ] = "one"
    iou: Annotated[IouCeiling | None, "ceiling on the overlap of a pair"] = None
    crop: Annotated[
        CropRule,
        "exact: the sampled area, with the nearest aspect ratio that fits; torchvision: RandomResizedCrop's ten tries "
        "of area and aspect, then its central crop",
    ] = "exact"

    def __post_init__(self) -> None:
        owner = f"policy {self.name}"
        if self.crop == "torchvision" and any(joint.parameter == "area" for joint in self.joint):
            raise ConfigError(
                f"{owner}: crop is 'torchvision', which samples an area again where its aspect does not fit, so no "
                "joint distribution of areas can hold; take crop 'exact', or leave the areas independent"
            )
        check_within(1, 2**15, side_px=self.side_px)
        check_within(1, 1024, num_views=self.num_views)
        for mean, std in zip(self.mean, self.std, strict=True):
            check_within(0, 1, mean=mean, std=std)
            check_above_zero(std=std)
        if not self.views:
            raise ConfigError(f"{owner}: views is empty; needed at least one view specification")
        for joint in self.joint:
            if beyond := [spec for spec in joint.specs if spec >= len(self.views)]:
                raise ConfigError(
                    f"{owner}: specs of a joint distribution is {beyond[0]}; there are {len(self.views)} view "
                    "specifications, from 0"
                )
            for spec, view in enumerate(self.views):
                if joint.parameter in ("brightness", "contrast") and getattr(view, joint.parameter) >= 1:
                    value = getattr(view, joint.parameter)
                    raise ConfigError(
                        f"{owner}: {joint.parameter} is {value:g} in view specification {spec}; needed below 1 for a "
                        "joint distribution of its ratio"
                    )
        if self.joint_mix == "one" and (total := sum(joint.probability for joint in self.joint)) > 1 + 1e-9:
            raise ConfigError(f"{owner}: joint probability adds up to {total:g}; needed at most 1 with joint_mix 'one'")

    def side_of(self, spec: int) -> int:
        """Side of the views of one specification, in px."""
        return self.views[spec].side_px or self.side_px

    def check_joint(self, num_views: int, *, any_specs: bool = False) -> None:
        """`ConfigError` where a joint distribution cannot hold, or would have no effect, on `num_views` views.

        any_specs: every view may follow any specification, instead of each in turn.
        """
        count = len(self.views)
        turns = {(j % count, (j + 1) % count) for j in range(0, num_views - 1, 2)}
        pairs = {(a, b) for a in range(count) for b in range(count)} if any_specs and num_views > 1 else turns
        for joint in self.joint:
            covered = sorted(pair for pair in pairs if not joint.specs or set(pair) <= set(joint.specs))
            if not covered:
                raise ConfigError(
                    f"policy {self.name}: the joint distribution of {joint.parameter} covers no pair of views (0, 1), "
                    f"(2, 3) ... of {num_views}; name the specifications of both views of a pair, or of all"
                )
            for pair in covered:
                self._check_pair(joint.parameter, *pair)

    def _check_pair(self, parameter: JointParameter, first: int, second: int) -> None:
        spans = [parameter_range(self.views[spec], parameter) for spec in (first, second)]
        shown = [f"{low:g} ... {high:g}" for low, high in spans]
        if spans[0] != spans[1]:
            raise ConfigError(
                f"policy {self.name}: {parameter} is joint, and a pair's views have it in different ranges: {shown[0]} "
                f"in view specification {first}, {shown[1]} in {second}; give both the same, or name others in 'specs'"
            )
        used = {"sigma": "p_blur", "brightness": "p_jitter", "contrast": "p_jitter"}.get(parameter)
        never = [spec for spec in (first, second) if used is not None and getattr(self.views[spec], used) == 0]
        if never or spans[0][0] == spans[0][1]:
            why = f"{used} is 0 in view specification {never[0]}" if never else f"it is always {spans[0][0]:g}"
            raise ConfigError(
                f"policy {self.name}: {parameter} is joint without effect, {why}; take another policy, or leave "
                f"{parameter} independent"
            )

    def with_side(self, side_px: int) -> "Policy":
        """The same policy at another side: sides of multi-crop views and blur sigmas scale along."""
        if self.side_px == side_px:
            return self
        check_within(1, 2**15, side_px=side_px)
        scale = side_px / self.side_px

        def scaled(spec: ViewSpec) -> ViewSpec:
            own = None if spec.side_px is None else max(1, round(spec.side_px * scale))
            return replace(spec, sigma=(spec.sigma[0] * scale, spec.sigma[1] * scale), side_px=own)

        return replace(self, side_px=side_px, views=tuple(scaled(spec) for spec in self.views))

    def with_joint(self, *joint: JointSpec, mix: JointMix = "one") -> "Policy":
        """The same policy with joint distributions between the two views of a pair."""
        return replace(self, joint=joint, joint_mix=mix)

    def to_dict(self) -> dict[str, Any]:
        """Everything the policy says, as JSON values: what an identity should hold of it."""
        return asdict(self)


def read_policy(path: Path, named: Mapping[str, Policy]) -> Policy:
    """A policy from a TOML file. Fields that it leaves out come from `base`, or are the defaults.

    Raises `ConfigError` that names the file, the field and the value.
    """
    where = f"policy file {path}"
    table = load_toml(path, where)
    base = table.pop("base", None)
    if base is not None and (not isinstance(base, str) or base not in named):
        raise ConfigError(f"{where}: base is {base!r}; needed one of {', '.join(sorted(named))}")
    values: dict[str, Any] = {"name": path.stem}
    if base is not None:
        side_px = table.get("side_px")
        start = named[base].with_side(side_px) if isinstance(side_px, int) and side_px > 0 else named[base]
        values = {**{field.name: getattr(start, field.name) for field in fields(Policy)}, **values}
    elif "views" not in table:
        raise ConfigError(f'{where}: views is missing; give [[views]] tables or base = "moco_v3"')
    elif isinstance(table["views"], list):
        values["num_views"] = max(2, len(table["views"]))
    for joint in table.get("joint", []) if isinstance(table.get("joint"), list) else []:
        if isinstance(joint, Mapping) and "laws" in joint:
            raise ConfigError(f"{where}: joint: option 'laws' is now 'specs'")
    return make_nested(Policy, {**values, **table}, where)
