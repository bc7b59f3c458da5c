"""How 2 m views of a row are compared, m on each side: a table of losses, one entry each; plain Python.

With two views, m = 1, `loss_avg` and `fea_avg` are the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from viewkit.pipelines.training.choices import Defaults, Option, option_names, own_values
from viewkit.pipelines.training.traits import Trait
from viewkit.shards.errors import ConfigError

if TYPE_CHECKING:
    from viewkit.pipelines.training.framework import Framework

MIN_DIM = 16
"""Width of outputs from which on DSF's expansion has six digits."""


@dataclass(frozen=True, kw_only=True)
class MultiView:
    """A way to compare the views of the two sides.

    apply: has a framework compare its views this way from now on; takes the entry's own options by name, and may import
    torch. needs: traits that the framework must have. misfit: why the framework's own options do not fit it, or None.
    """

    help: str
    apply: Callable[..., None]
    needs: tuple[Trait, ...] = ()
    options: Defaults = field(default_factory=dict)
    misfit: Callable[[Mapping[str, Any]], str | None] = lambda own: None


def _keep(framework: "Framework") -> None:
    """Averaging losses is what every framework does by itself."""


def _average_features(framework: "Framework") -> None:
    from viewkit.pipelines.training.sides import merge_sides

    framework.merge = merge_sides


def _compare_distributions(
    framework: "Framework", *, dsf_shrink: float, dsf_exact: bool, dsf_tau: float, dsf_plain_kappa: bool
) -> None:
    from viewkit.pipelines.losses.margin import dsf_margin
    from viewkit.pipelines.training.sides import CompareDistributions, merge_sides

    framework.merge = merge_sides
    framework.margin_of = partial(
        dsf_margin, tau=dsf_tau, shrink=dsf_shrink, exact=dsf_exact, plain_kappa=dsf_plain_kappa
    )
    framework.compare = CompareDistributions(
        shrink=dsf_shrink, exact=dsf_exact, tau=dsf_tau, plain_kappa=dsf_plain_kappa
    )


def _dsf_misfit(own: Mapping[str, Any]) -> str | None:
    if own.get("decoupled"):
        return "it has a denominator of its own; leave --decoupled out"
    return f"dim is {own['dim']}; it needs at least {MIN_DIM}" if own["dim"] < MIN_DIM else None


MULTI_VIEW: dict[str, MultiView] = {
    "loss_avg": MultiView(help="mean of all losses", apply=_keep),
    "fea_avg": MultiView(help="loss of mean features", apply=_average_features, needs=("by_direction",)),
    "dsf": MultiView(
        help="divergence of distributions",
        apply=_compare_distributions,
        needs=("momentum_keys",),
        options={
            Option(
                "dsf_shrink", float, "factor of the mean length before the concentration is estimated; 1: off", 0.01, 1
            ): 0.95,
            Option("dsf_plain_kappa", bool, "do not divide the concentration by the width of the outputs"): False,
            Option("dsf_tau", float, "temperature that the divergence is divided by", positive=True): 1.0,
            Option("dsf_exact", bool, "A_p of the concentration in the divergence, instead of the mean length"): False,
        },
        misfit=_dsf_misfit,
    ),
}


def multi_view_option_names() -> list[str]:
    """Names of the options that say how several views are compared."""
    return ["multi_view", *option_names(entry.options for entry in MULTI_VIEW.values())]


def resolve_multi_view(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the entry's own options, given or default. `ConfigError` for an option of another entry."""
    has = {option.name for option in MULTI_VIEW[name].options}
    for entry, each in MULTI_VIEW.items():
        for option in each.options:
            if given.get(option.name) is not None and option.name not in has:
                raise ConfigError(
                    f"{option.name} is {given[option.name]} and multi_view is '{name}': it needs --multi-view {entry}"
                )
    return own_values(MULTI_VIEW[name].options, given)
