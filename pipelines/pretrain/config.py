"""Options of `viewkit pretrain` as they are given, and the settings that they resolve to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from viewkit.pipelines.engine.ranges import check_at_least, check_within
from viewkit.pipelines.frameworks.table import FRAMEWORKS, card_of, cards
from viewkit.pipelines.models.architectures import Init, Kind, kind_of
from viewkit.pipelines.pairs.options import COMPARISONS, FILTER_SHARE, ORACLE_SHARE, VIEWS, ViewOptions
from viewkit.pipelines.pretrain.compatibility import check_count, check_fit
from viewkit.pipelines.training.choices import option_names, options_class
from viewkit.pipelines.training.multi_view import MULTI_VIEW, resolve_multi_view
from viewkit.pipelines.training.options import OptimiserName, TrainingOptions, TrainingSettings
from viewkit.pipelines.training.schedules import LrSchedule
from viewkit.shards.errors import ConfigError

OWN = {name: (card.options_on("resnet"), card.options_on("vit")) for name, card in cards().items()}
FRAMEWORK_OPTIONS = option_names(table for tables in OWN.values() for table in tables)
COMPARED = {name: (each.options,) for name, each in MULTI_VIEW.items()}
BY_RECIPE = (
    "policy", "init", "optimiser", "lr", "lr_end", "lr_schedule", "warmup_epochs", "drop_path", "weight_decay",
    "weight_decay_end", "decay_all",
)  # fmt: skip
"""Options whose default the framework has, by kind of backbone."""
MULTI_VIEW_HELP = "how they are compared: " + ", ".join(f"{each.help} ({name})" for name, each in MULTI_VIEW.items())

if TYPE_CHECKING:
    FrameworkName = str
    MultiViewName = str

    class FrameworkOptions: ...

    class MultiViewOptions: ...
else:  # the tables say which there are
    FrameworkName, MultiViewName = Literal[tuple(FRAMEWORKS)], Literal[tuple(MULTI_VIEW)]
    FrameworkOptions = options_class("FrameworkOptions", OWN, owner="framework", group="Framework")
    MultiViewOptions = options_class("MultiViewOptions", COMPARED, owner="loss", group="Views and pairs")


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(MultiViewOptions, ViewOptions, FrameworkOptions, TrainingOptions):
    """Train an encoder on pairs of views: any framework, any selection of pairs, with or without generated views.

    None: as the framework has it on this kind of backbone. `resolve` gives the settings.
    """

    GROUP: ClassVar[str] = "Training"
    MAIN: ClassVar[tuple[str, ...]] = (
        "framework", "select", "alpha", "weights", "arch", "side_px", "policy", "epochs", "batch_size", "lr",
    )  # fmt: skip

    framework: Annotated[FrameworkName, "self-supervised method"] = "moco_v3"
    multi_view: Annotated[MultiViewName, MULTI_VIEW_HELP] = "loss_avg"
    arch: Annotated[str, "a ViT or ResNet of timm, or one of viewkit's small ones"] = "resnet18_cifar"
    init: Annotated[
        Init | None,
        "initialisation of a ViT: MoCo v3's weights with fixed sine-cosine positions and a frozen patch projection, or "
        "timm's (default: the framework's)",
    ] = None
    num_heads: Annotated[int | None, "attention heads of a ViT, in place of the architecture's own number"] = None
    side_px: Annotated[int, "side of the views"] = 32
    policy: Annotated[str | None, "augmentations: a policy's name, or a TOML file (default: the framework's)"] = None
    epochs: Annotated[int, "passes over the images"] = 200
    steps: Annotated[int | None, "steps in all, instead of epochs"] = None
    warmup_epochs: Annotated[
        float | None, "epochs in which the learning rate rises (default: the framework's, at most 15 % of the training)"
    ] = None
    batch_size: Annotated[int, "images in a batch"] = 256
    optimiser: Annotated[OptimiserName | None, "optimiser (default: the framework's)"] = None
    lr: Annotated[
        float | None, "learning rate at 256 images a batch, scaled with the batch (default: the framework's)"
    ] = None
    lr_end: Annotated[
        float | None, "learning rate at the end of the cosine, not scaled with the batch (default: the framework's)"
    ] = None
    lr_schedule: Annotated[
        LrSchedule | None,
        "after the warm-up: half a cosine, or a tenth after 60 % and 80 % of the steps (default: the framework's)",
    ] = None
    drop_path: Annotated[
        float | None, "stochastic depth of a ViT: share of rows that skip its last block (default: the framework's)"
    ] = None
    weight_decay: Annotated[float | None, "weight decay; see --decay-all (default: the framework's)"] = None
    weight_decay_end: Annotated[
        float | None, "weight decay at the end, along a cosine (default: the framework's, else constant)"
    ] = None
    decay_all: Annotated[
        bool | None, "biases, norms and class tokens decay too, as in some released code (default: the framework's)"
    ] = None
    seed: Annotated[int, "seed of all random numbers"] = 0

    def __post_init__(self) -> None:
        resolve(self)  # an impossible config is refused at once


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(ViewOptions, TrainingSettings):
    """What a run is trained with: every value known. own: the framework's options; compared: the multi-view loss's.

    lr_end: at the end of the cosine, for the whole batch. weight_decay_end: where the weight decay moves to along a
    cosine, or None.
    """

    framework: str
    own: Mapping[str, Any]
    multi_view: str
    compared: Mapping[str, Any]
    optimiser: OptimiserName
    lr_end: float
    lr_schedule: LrSchedule
    drop_path: float
    weight_decay_end: float | None
    decay_all: bool

    @property
    def num_globals(self) -> int | None:
        """Large views of a multi-crop framework; None where a framework compares pairs."""
        return self.own.get("num_globals")

    def values(self) -> dict[str, Any]:
        """As JSON values for the identity, the framework's and the multi-view loss's own options among the others."""
        values = super().values()
        own, compared = values.pop("own"), values.pop("compared")
        return {**values, **own, **compared}


def resolve(config: PretrainConfig) -> PretrainSettings:
    """Every value of a run, given or default; a pure function. `ConfigError` for what cannot be."""
    if config.framework not in FRAMEWORKS:
        raise ConfigError(f"framework is '{config.framework}'; it must be one of {', '.join(sorted(FRAMEWORKS))}")
    if config.multi_view not in MULTI_VIEW:
        raise ConfigError(f"multi_view is '{config.multi_view}'; it must be one of {', '.join(MULTI_VIEW)}")
    given: dict[str, Any] = asdict(config)
    card, kind = card_of(config.framework), kind_of(config.arch)
    recipe = card.recipe(kind)
    values = {field.name: given[field.name] for field in fields(PretrainSettings) if field.name in given}
    for name in BY_RECIPE:
        values[name] = getattr(recipe, name) if given[name] is None else given[name]
    if config.lr_end is None:
        values["lr_end"] = recipe.end_of(values["lr"] * config.batch_size / 256, values["lr_schedule"])
    if config.selection.chooses:
        values["views"] = VIEWS if config.views is None else config.views
        if card.traits.multi_crop:
            values["comparisons"] = COMPARISONS if config.comparisons is None else config.comparisons
    if config.selection.filters and config.k_sc is None and config.filter_share is None:
        values["filter_share"] = FILTER_SHARE
    if "objects" in config.selection.needs and config.oracle_share is None:
        values["oracle_share"] = ORACLE_SHARE
    own = card.resolve({name: given[name] for name in FRAMEWORK_OPTIONS}, kind, config.batch_size)
    values["fit_warmup"] = config.warmup_epochs is None
    values["fit_momentum"] = "momentum" in own and given["momentum"] is None
    settings = PretrainSettings(**values, own=own, compared=resolve_multi_view(config.multi_view, given))
    settings.check()
    check_at_least(0, weight_decay_end=settings.weight_decay_end)
    check_rate(settings, kind)
    config.check_views(config.side_px)
    check_fit(config, config.multi_view, card, own)
    check_count(settings, card)
    return settings


def check_rate(settings: PretrainSettings, kind: Kind) -> None:
    """`ConfigError` for ends of the learning rate and shares of dropped rows that cannot be."""
    check_at_least(0, lr_end=settings.lr_end)
    check_within(0, 0.9, drop_path=settings.drop_path)
    if settings.lr_end > settings.peak_lr:
        raise ConfigError(
            f"lr_end is {settings.lr_end:g} and the highest learning rate of the whole batch is {settings.peak_lr:g}; "
            "the end must lie below it"
        )
    if settings.lr_schedule == "steps" and settings.lr_end:
        raise ConfigError(f"lr_end is {settings.lr_end:g} and lr_schedule is 'steps', which has no end; leave one out")
    if kind == "resnet" and settings.drop_path:
        raise ConfigError(f"drop_path is {settings.drop_path} and arch is '{settings.arch}': only ViTs drop paths")
