"""The views of a run: where its batches come from, and what selects or weights them before a step."""

from dataclasses import replace
from pathlib import Path
from typing import cast

from viewkit.pipelines.distributed import rank, share_of_batch, world_size
from viewkit.pipelines.encoders.crop_boxes import CropBoxes
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.hard_views.crops import HardCrops, with_candidates
from viewkit.pipelines.hard_views.log import ViewLog
from viewkit.pipelines.hard_views.pairs import HardPairs, Rule
from viewkit.pipelines.hard_views.preview import Preview
from viewkit.pipelines.losses.row_weights import quality_weights
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.pairs.load import load_pairs, open_loader
from viewkit.pipelines.pairs.lowest_iou import LowestIouPairs
from viewkit.pipelines.pairs.plan import RecipeSampler
from viewkit.pipelines.pairs.random import RandomViews
from viewkit.pipelines.pairs.source import PairSource, ViewBatch
from viewkit.pipelines.pretrain.config import PretrainSettings
from viewkit.pipelines.pretrain.quality import WeightFreshPairs, compared_pairs, open_rater
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.loop import BatchSelector
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import Policy
from viewkit.shards.errors import ConfigError


def create_source(settings: PretrainSettings, run: Run) -> PairSource:
    """Batches of the views that are asked for: pairs, m + m views, crops, or candidates for `create_selector`."""
    if settings.selection.stored:
        return stored_source(settings, run)
    policy = views_policy(settings)
    loader = open_loader(
        run.dataset,
        alpha=settings.alpha,
        genview=settings.genview,
        batch_size=share_of_batch(settings.batch_size),
        seed=settings.seed,
        rank=rank(),
        world_size=world_size(),
    )
    rounds = settings.epochs if settings.steps is None else -(-settings.steps // loader.steps_per_epoch)
    sampler = random_sampler(settings, run, policy, rounds)
    return PairSource(loader, sampler, policy, run.device, create_preview(settings), cycle_generated=True)


def stored_source(settings: PretrainSettings, run: Run) -> PairSource:
    """Pairs from the column that `score` or `draw` wrote."""
    assert settings.generated != "extra"  # `check_fit` has refused it
    return load_pairs(
        run.dataset,
        policy=settings.policy,
        side_px=settings.side_px,
        batch_size=share_of_batch(settings.batch_size),
        select=settings.select,
        pairs=settings.pairs,
        k_sc=settings.k_sc,
        filter_share=settings.filter_share,
        k_al=settings.k_al,
        oracle_share=settings.oracle_share,
        placebo=settings.placebo,
        alpha=settings.alpha,
        generated=settings.generated,
        weights=settings.weights,
        genview=settings.genview,
        quality=settings.quality_column,
        other_policy=settings.other_policy,
        epochs=settings.epochs,
        steps=settings.steps,
        seed=settings.seed,
        stage=run.stage,
        device=run.device,
        rank=rank(),
        world_size=world_size(),
    )


def random_sampler(settings: PretrainSettings, run: Run, policy: Policy, rounds: int) -> RecipeSampler:
    """Views sampled anew each epoch: those that are trained on, or candidates to select from. rounds: epochs."""
    num_views = settings.num_views if settings.num_globals is None else policy.num_views
    random = RandomViews(
        policy,
        seed=settings.seed,
        stage=run.stage,
        num_views=num_views,
        alpha=settings.alpha,
        generated=settings.generated,
        by_side=settings.num_globals is None and settings.views_per_side > 1,
        boxes=crop_boxes(settings, run),
        rounds=rounds,
    )
    return LowestIouPairs(random) if settings.select == "lowest_iou" else random


def crop_boxes(settings: PretrainSettings, run: Run) -> CropBoxes | None:
    """The boxes that the options ask for."""
    if settings.crop_box is None:
        return None
    encoder = open_encoder(settings.crop_box_encoder, run.dataset, device=run.device)
    return CropBoxes(encoder, settings.crop_box)


def views_policy(settings: PretrainSettings) -> Policy:
    """The settings' policy at its side, with the changes to what it samples and, for multi-crop, its candidates.

    Raises `ConfigError` where the policy's views do not fit the framework.
    """
    policy = settings.changed(load_policy(settings.policy).with_side(settings.side_px), settings.num_globals)
    if (ceiling := settings.iou_ceiling()) is not None:
        policy = replace(policy, iou=ceiling)
    elif policy.iou is not None:
        settings.refuse_ceiling(f"policy '{policy.name}' bounds overlaps")
    if settings.selection.chooses and policy.joint:
        settings.refuse_joint(f"{policy.joint[0].parameter} of policy '{policy.name}'")
    if policy.joint:
        policy.check_joint(policy.num_views if settings.num_globals else settings.num_views)
    sides = [policy.side_of(spec) for spec in range(len(policy.views))]
    if settings.num_globals is None:
        if len(set(sides)) > 1:
            raise ConfigError(
                f"policy '{policy.name}' gives views of {' and '.join(map(str, sorted(set(sides))))} px, and "
                f"{settings.framework} compares views of one side; take --framework dino or swav, or another policy"
            )
        return policy
    large = settings.num_globals
    if len(sides) != policy.num_views or len(sides) < large or len(set(sides[:large])) > 1:
        raise ConfigError(
            f"policy '{policy.name}' gives {policy.num_views} views by specifications for "
            f"{', '.join(map(str, sides))} px, and {settings.framework} needs one for each view, "
            f"the first {large} of one side; take another policy or --num-globals"
        )
    if settings.selection.by_loss:
        assert settings.views is not None
        num_small = 2 * num_small_views(policy, large) if settings.small_views is None else settings.small_views
        if large != 2 or num_small < num_small_views(policy, large):
            raise ConfigError(
                f"select is '{settings.select}' with num_globals {large} and small_views {num_small}: it selects 2 "
                f"large views, and {num_small_views(policy, large)} small ones as policy '{policy.name}' has them"
            )
        if settings.views == 2 and num_small == num_small_views(policy, large):
            raise ConfigError(
                f"views is 2 and small_views is {num_small}: all of them are used, so there is nothing to select"
            )
        return with_candidates(policy, num_large=settings.views, num_small=num_small, large_specs=large)
    return policy


def num_small_views(policy: Policy, num_large: int) -> int:
    """Small views per row of a multi-crop policy."""
    return policy.num_views - num_large


def check_sides(backbone: Backbone, source: PairSource) -> None:
    """`ConfigError` unless the backbone takes views of every side that the source renders."""
    if backbone.kind != "vit":
        return
    patch_px = int(cast(tuple[int, int], backbone.trunk.patch_embed.patch_size)[0])
    policy = source.policy
    sides = {policy.side_of(spec) for spec in range(len(policy.views))}
    preview = source.preview.side_px if isinstance(source.preview, Preview) else None
    for side in sorted({*sides, *(() if preview is None else (preview,))}):
        if side % patch_px:
            raise ConfigError(
                f"views of {side} px are not tiled by the {patch_px} px patches of '{backbone.name}'; take a multiple: "
                "--select-side-px, --side-px, or a policy file with sides of its own"
            )


def create_selector(settings: PretrainSettings, run: Run, encoder_weights: Path | None = None) -> BatchSelector | None:
    """What selects or weights the views of every batch before the step; None where they are trained on as they come.

    encoder_weights: of the encoder that rates fresh pairs, see `open_rater`.
    """
    if settings.rates_fresh:
        rater = open_rater(run.dataset, run.device, encoder_weights)
        return WeightFreshPairs(rater, compared_pairs(settings.num_globals))
    if settings.weights == "quality":
        return weight_by_quality
    if not settings.selection.by_loss:
        return None
    rule, preview = cast(Rule, settings.select), create_preview(settings)
    log = None if settings.log_views is None else ViewLog(run.folder, settings.log_views)
    if settings.num_globals is None:
        return HardPairs(rule, preview, settings.agreement_every, log)
    assert settings.views is not None and settings.comparisons is not None
    return HardCrops(
        num_large=settings.views,
        num_chosen=num_small_views(load_policy(settings.policy), settings.num_globals),
        comparisons=settings.comparisons,
        seed=settings.seed,
        stage=run.stage,
        rule=rule,
        preview=preview,
        log=log,
    )


def weight_by_quality(framework: Framework, batch: ViewBatch, stepper: Stepper) -> ViewBatch:
    """The batch with weights by the quality of its pairs (GenView, eq. 13)."""
    assert batch.quality is not None, "the source was asked for it"
    return replace(batch, weights=quality_weights(batch.quality))


def create_preview(settings: PretrainSettings) -> Preview | None:
    """How selection sees the candidates, where it does not see them as they are trained on."""
    if settings.select_side_px is None and not settings.select_static_colour:
        return None
    return Preview(settings.select_side_px, settings.select_static_colour)
