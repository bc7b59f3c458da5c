"""What a policy says: the law of every view, what is joint between two views, and how pixels are normalised.

Policies are data. A user's own is a TOML file of the same fields (`read_policy`); `base` starts from a named one.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal, cast, get_args

from viewkit.shards.errors import ConfigError

Pair = tuple[float, float]
Colour = tuple[float, float, float]
Interpolation = Literal["bilinear", "bicubic"]
JointParameter = Literal["area", "sigma", "brightness", "contrast"]
JointMix = Literal["one", "all"]

IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_STD: Colour = (0.229, 0.224, 0.225)


def _number(owner: str, name: str, value: object, low: float, high: float, above: bool = False) -> None:
    """Refuse a value that is no finite number in [low, high], or (low, high] when `above`."""
    bracket = "(" if above else "["
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ConfigError(f"{owner}: {name} is {value!r}; needed a number in {bracket}{low:g}, {high:g}]")
    if not low <= value <= high or (above and value == low):
        raise ConfigError(f"{owner}: {name} is {value:g}; needed a number in {bracket}{low:g}, {high:g}]")


def _whole(owner: str, name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{owner}: {name} is {value!r}; needed a whole number in {low} ... {high}")


def _range(owner: str, name: str, value: object, low: float, high: float) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        raise ConfigError(f"{owner}: {name} is {value!r}; needed two numbers (lowest, highest)")
    for end in value:
        _number(owner, name, end, low, high, above=True)
    if value[0] > value[1]:
        raise ConfigError(f"{owner}: {name} is {list(value)}; its lower end lies above its upper end")


def _flag(owner: str, name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{owner}: {name} is {value!r}; needed true or false")


def _choice(owner: str, name: str, value: object, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{owner}: {name} is {value!r}; needed one of {', '.join(map(str, choices))}")


@dataclass(frozen=True, kw_only=True)
class ViewLaw:
    """The law of one view. Defaults are MoCo v3's first view for ResNet, without blur."""

    area: Pair = (0.2, 1.0)
    """Uniform law of the crop's share of the image's area."""
    aspect: Pair = (3 / 4, 4 / 3)
    """Log-uniform law of the crop's width / height, in pixels."""
    centre: float = 1.0
    """Positions follow Beta(centre, centre): 1 = uniform, below 1 = centre-suppressed (Peng et al. 2022, sec. 3.3)."""
    p_flip: float = 0.5
    p_jitter: float = 0.8
    brightness: float = 0.4
    """Factor uniform in 1 -+ this, cut at 0; the same for contrast and saturation."""
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    """Shift uniform in -+ this, in turns."""
    p_grey: float = 0.2
    grey_first: bool = False
    """Grey before the jitter (MoCo v1) instead of after it."""
    p_blur: float = 0.0
    sigma: Pair = (0.1, 2.0)
    """Uniform law of the blur's standard deviation, px at the view's side."""
    p_solarize: float = 0.0
    threshold: float = 128 / 255
    """Values from here on are inverted by solarize."""
    p_randaugment: float = 0.0
    magnitude: int = 9
    """RandAugment's magnitude, 0 ... 30 (Cubuk et al. 2020)."""
    side_px: int | None = None
    """Side of this view where it differs from the policy's (multi-crop)."""

    def __post_init__(self) -> None:
        owner = "view law"
        _range(owner, "area", self.area, 0, 1)
        _range(owner, "aspect", self.aspect, 0, 1000)
        _range(owner, "sigma", self.sigma, 0, 1000)
        _number(owner, "centre", self.centre, 0, 1, above=True)
        for name in ("p_flip", "p_jitter", "p_grey", "p_blur", "p_solarize", "p_randaugment", "threshold"):
            _number(owner, name, getattr(self, name), 0, 1)
        for name in ("brightness", "contrast", "saturation"):
            _number(owner, name, getattr(self, name), 0, 10)
        _number(owner, "hue", self.hue, 0, 0.5)
        _whole(owner, "magnitude", self.magnitude, 0, 30)
        _flag(owner, "grey_first", self.grey_first)
        if self.side_px is not None:
            _whole(owner, "side_px", self.side_px, 1, 2**15)


@dataclass(frozen=True, kw_only=True)
class JointLaw:
    """JC(beta) on the ratio of one parameter of two views (Zhang et al. 2025, Alg. 1).

    Views (0, 1), (2, 3), ... are the pairs. A pair whose two laws give the parameter different ranges stays
    independent.
    """

    parameter: JointParameter = "area"
    beta: float = 0.0
    """Any real number; the smaller, the further the ratio is from 1. 0: uniform log ratio."""
    probability: float = 1.0
    """Share of pairs that this law is used on (appendix F)."""
    laws: tuple[int, ...] = ()
    """Indices of the view laws it is used on (appendix D: global or local views); empty: all."""

    def __post_init__(self) -> None:
        owner = "joint law"
        _choice(owner, "parameter", self.parameter, get_args(JointParameter))
        _number(owner, "beta", self.beta, -100, 100)
        _number(owner, "probability", self.probability, 0, 1)
        for law in self.laws:
            _whole(owner, "laws", law, 0, 2**20)


@dataclass(frozen=True, kw_only=True)
class IouCeiling:
    """Pairs whose crops overlap more than a bound are drawn again (Hard View Selection, sec. 5.2)."""

    start: float = 0.30
    """Bound in the first round; linear in between. A decreasing bound is allowed."""
    end: float = 0.35
    """Bound in the last round."""
    tries: int = 512
    """At most so many draws; after them the pair with the least overlap is taken."""
    alternating: bool = False
    """Every row is bounded in every other round only, half of the rows in each."""

    def __post_init__(self) -> None:
        _number("iou", "start", self.start, 0, 1)
        _number("iou", "end", self.end, 0, 1)
        _whole("iou", "tries", self.tries, 1, 4096)
        _flag("iou", "alternating", self.alternating)

    def bound(self, round: int, rounds: int) -> float:
        """The bound in a round of 0 ... rounds - 1."""
        return self.start + (self.end - self.start) * (round / (rounds - 1) if rounds > 1 else 0.0)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A whole augmentation policy."""

    name: str
    views: tuple[ViewLaw, ...]
    side_px: int = 224
    interpolation: Interpolation = "bilinear"
    mean: Colour = IMAGENET_MEAN
    """Of float values in 0-1, red, green, blue."""
    std: Colour = IMAGENET_STD
    num_views: int = 2
    joint: tuple[JointLaw, ...] = ()
    joint_mix: JointMix = "one"
    """one: at most one joint law a pair, chosen by their probabilities; all: each with its own coin."""
    iou: IouCeiling | None = None

    def __post_init__(self) -> None:
        owner = f"policy {self.name}"
        _whole(owner, "side_px", self.side_px, 1, 2**15)
        _whole(owner, "num_views", self.num_views, 1, 1024)
        _choice(owner, "interpolation", self.interpolation, get_args(Interpolation))
        _choice(owner, "joint_mix", self.joint_mix, get_args(JointMix))
        for name, low in (("mean", 0.0), ("std", 0.0)):
            value = getattr(self, name)
            if not isinstance(value, tuple) or len(value) != 3:
                raise ConfigError(f"{owner}: {name} is {value!r}; needed three numbers (red, green, blue)")
            for number in value:
                _number(owner, name, number, low, 1, above=name == "std")
        if not self.views:
            raise ConfigError(f"{owner}: views is empty; needed at least one view law")
        for joint in self.joint:
            if beyond := [law for law in joint.laws if law >= len(self.views)]:
                raise ConfigError(f"{owner}: joint laws is {beyond[0]}; there are {len(self.views)} view laws, from 0")
            for law, view in enumerate(self.views):
                if joint.parameter in ("brightness", "contrast") and getattr(view, joint.parameter) >= 1:
                    value = getattr(view, joint.parameter)
                    raise ConfigError(
                        f"{owner}: {joint.parameter} is {value:g} in view law {law}; needed below 1 for a joint law of "
                        "its ratio"
                    )
        if self.joint_mix == "one" and (total := sum(joint.probability for joint in self.joint)) > 1 + 1e-9:
            raise ConfigError(f"{owner}: joint probability adds up to {total:g}; needed at most 1 with joint_mix 'one'")

    def side_of(self, law: int) -> int:
        """Side of the views of one law, in px."""
        return self.views[law].side_px or self.side_px

    def with_side(self, side_px: int) -> "Policy":
        """The same policy at another side: sides of multi-crop views and blur sigmas scale along."""
        if self.side_px == side_px:
            return self
        _whole(f"policy {self.name}", "side_px", side_px, 1, 2**15)
        scale = side_px / self.side_px

        def scaled(law: ViewLaw) -> ViewLaw:
            own = None if law.side_px is None else max(1, round(law.side_px * scale))
            return replace(law, sigma=(law.sigma[0] * scale, law.sigma[1] * scale), side_px=own)

        return replace(self, side_px=side_px, views=tuple(scaled(law) for law in self.views))

    def with_joint(self, *joint: JointLaw, mix: JointMix = "one") -> "Policy":
        """The same policy with joint laws between the two views of a pair."""
        return replace(self, joint=joint, joint_mix=mix)

    def with_iou(self, iou: IouCeiling | None) -> "Policy":
        """The same policy with a ceiling on the overlap of a pair."""
        return replace(self, iou=iou)

    def with_centre(self, centre: float) -> "Policy":
        """The same policy with Beta(centre, centre) positions."""
        return replace(self, views=tuple(replace(law, centre=centre) for law in self.views))

    def to_dict(self) -> dict[str, Any]:
        """Everything the policy says, as JSON values: what an identity should hold of it."""
        return asdict(self)


def _typed(kind: type, table: Mapping[str, Any], owner: str) -> Any:
    """A dataclass from one table of a TOML file; unknown fields are errors."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{owner} is {table!r}; needed a table of fields")
    known = [item.name for item in fields(kind)]
    for name in table:
        if name not in known:
            raise ConfigError(f"{owner}: unknown field '{name}'; known are {', '.join(known)}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{owner}: {error}") from None


def _tables(value: Any, owner: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise ConfigError(f"{owner} is {value!r}; needed a list of tables, written [[{owner.split()[-1]}]]")
    return value


def read_policy(path: Path, named: Mapping[str, Policy]) -> Policy:
    """A policy from a TOML file. Fields that it leaves out come from `base`, or are the defaults.

    Raises `ConfigError` that names the file, the field and the value.
    """
    where = f"policy file {path}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: is not UTF-8 text ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: is not TOML ({error})") from None
    base = table.pop("base", None)
    if base is not None and (not isinstance(base, str) or base not in named):
        raise ConfigError(f"{where}: base is {base!r}; needed one of {', '.join(sorted(named))}")
    values: dict[str, Any] = {item.name: getattr(named[base], item.name) for item in fields(Policy)} if base else {}
    if base and isinstance(side := table.get("side_px"), int) and side > 0:
        values = {item.name: getattr(named[base].with_side(side), item.name) for item in fields(Policy)}
    values["name"] = table.get("name", path.stem)
    if "views" in table:
        views = _tables(table["views"], f"{where}: views")
        laws = [_typed(ViewLaw, law, f"{where}: views {index}") for index, law in enumerate(views)]
        table["views"] = laws
        values.setdefault("num_views", max(2, len(laws)))
    if "joint" in table:
        joint = _tables(table["joint"], f"{where}: joint")
        table["joint"] = [_typed(JointLaw, law, f"{where}: joint {index}") for index, law in enumerate(joint)]
    if "iou" in table:
        table["iou"] = _typed(IouCeiling, table["iou"], f"{where}: iou")
    if "views" not in table and "views" not in values:
        raise ConfigError(f'{where}: views is missing; give [[views]] tables or base = "moco_v3"')
    return cast(Policy, _typed(Policy, {**values, **table}, where))
