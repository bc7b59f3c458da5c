"""Which views and losses fit which framework, judged by the framework's traits: `ConfigError` for what does not."""

from collections.abc import Mapping
from typing import Any

from viewkit.pipelines.encoders.names import encoder_card
from viewkit.pipelines.frameworks.card import Card
from viewkit.pipelines.frameworks.table import cards
from viewkit.pipelines.pairs.options import ViewOptions
from viewkit.pipelines.training.multi_view import MULTI_VIEW
from viewkit.pipelines.training.traits import TRAITS
from viewkit.shards.errors import ConfigError


def check_fit(views: ViewOptions, multi_view: str, card: Card, own: Mapping[str, Any]) -> None:
    """own: the framework's own options."""
    mapped = views.crop_box_encoder
    if views.crop_box is not None and encoder_card(mapped).weights != "artifact" and not mapped.endswith("/random"):
        raise ConfigError(f"crop_box_encoder is '{mapped}', whose weights lie elsewhere; take estimator or runs/NAME")
    if views.selection.by_loss:
        _check_by_loss(views, card)
    elif card.traits.multi_crop and views.select != "random":
        raise ConfigError(f"select is '{views.select}', which gives pairs, and {card.name} takes several crops")
    if views.weights == "quality" and not card.traits.per_row:
        raise ConfigError(
            f"weights is 'quality' and framework is '{card.name}': its loss is one number of a whole batch, so no row "
            "can be weighted; take another framework"
        )
    if views.generated == "extra":
        _check_extra(views, multi_view, card)
    if views.views_per_side > 1 or multi_view != "loss_avg":
        _check_sides(views, multi_view, card, own)


def _check_by_loss(views: ViewOptions, card: Card) -> None:
    chosen = f"select is '{views.select}' and framework is '{card.name}'"
    if not card.traits.per_row:
        raise ConfigError(
            f"{chosen}: its loss is one number of a whole batch, so no row has a worst pair; take another framework, "
            "or --select lowest_iou"
        )
    if card.traits.couples_rows:
        raise ConfigError(
            f"{chosen}: its targets are shares of a whole batch and change with every other row's choice; take another "
            "framework"
        )
    if card.traits.multi_crop:
        if views.select_side_px is not None or views.agreement_every is not None:
            raise ConfigError(
                f"select_side_px and agreement_every are of pairs, and {card.name} takes crops of two sides; leave "
                "them out"
            )
    elif views.small_views is not None or views.comparisons is not None:
        raise ConfigError(f"small_views and comparisons are of multi-crop, and {card.name} takes pairs")


def _check_extra(views: ViewOptions, multi_view: str, card: Card) -> None:
    """One more positive is for plain pairs."""
    what = "generated is 'extra', one view more than a pair,"
    if card.traits.multi_crop:
        raise ConfigError(f"{what} and {card.name} has several crops already; take a framework of pairs")
    if views.select != "random":
        raise ConfigError(f"{what} and select is '{views.select}', which gives one pair; take --select random")
    if views.views_per_side > 1 or multi_view != "loss_avg":
        raise ConfigError(
            f"{what} and views_per_side is {views.views_per_side} with multi_view '{multi_view}'; leave these out"
        )


def check_count(views: ViewOptions, card: Card) -> None:
    """Candidate views of which there is nothing to choose."""
    if views.views is None:
        return
    if card.traits.multi_crop:
        if views.views % 2:
            raise ConfigError(
                f"views is {views.views}: half of the large views follow each specification; take an even number"
            )
    elif views.views < 3:
        raise ConfigError(
            f"views is {views.views} and select is '{views.select}': of {views.views} views there is one pair and "
            "nothing to choose; take at least 3"
        )


def _check_sides(views: ViewOptions, multi_view: str, card: Card, own: Mapping[str, Any]) -> None:
    what = f"multi_view is '{multi_view}' with views_per_side {views.views_per_side}"
    if card.traits.multi_crop:
        raise ConfigError(f"{what}, and {card.name} has several crops already; take a framework of pairs")
    if views.select != "random":
        raise ConfigError(f"{what} and select is '{views.select}', which gives one pair; take --select random")
    loss = MULTI_VIEW[multi_view]
    for trait in loss.needs:
        if not getattr(card.traits, trait):
            names = ", ".join(name for name, each in cards().items() if getattr(each.traits, trait))
            raise ConfigError(f"{what}: it needs {TRAITS[trait]}, so one of {names}")
    if (why := loss.misfit(own)) is not None:
        raise ConfigError(f"{what}: {why}")
