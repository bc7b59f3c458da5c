"""The views of a run: where its batches come from, and who chooses or weighs what is trained on."""

from dataclasses import replace
from typing import Literal, cast

from viewkit.pipelines.distributed import rank, share_of_batch, world_size
from viewkit.pipelines.losses.quality_weights import quality_weights
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.view_options import BY_LOSS, STORED
from viewkit.pipelines.stage import Run
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.hard_crops import HardCrops
from viewkit.pipelines.training.hard_views import HardViews, Rule
from viewkit.pipelines.training.loop import Picker
from viewkit.pipelines.training.lowest_iou import LowestIouPairs
from viewkit.pipelines.training.multi_crop import with_candidates
from viewkit.pipelines.training.pair_loader import load_pairs
from viewkit.pipelines.training.pairs import Chooser, PairSource, RandomViews, ViewBatch
from viewkit.pipelines.training.preview import Preview
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.training.view_log import ViewLog
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import JointLaw, Policy
from viewkit.shards.errors import ConfigError


def create_source(config: PretrainConfig, run: Run) -> PairSource:
    """Batches of the views that the config asks for: pairs, m + m views, crops, or candidates for `create_picker`."""
    source = load_pairs(
        run.dataset,
        policy=config.settings.policy,
        side_px=config.side_px,
        batch_size=share_of_batch(config.batch_size),
        select=cast(Literal["stored", "vs2fi"], config.select) if config.select in STORED else "random",
        pairs=config.pairs,
        k_sc=config.k_sc,
        k_al=config.k_al,
        alpha=config.alpha,
        generated=config.generated,
        weights=config.weights,
        seed=config.seed,
        stage=run.stage,
        device=run.device,
        rank=rank(),
        world_size=world_size(),
    )
    if config.select in STORED:
        return source
    policy = views_policy(config)
    num_views = policy.num_views
    if config.num_globals is None:
        num_views = 2 * config.views_per_side if config.views is None else config.views
    drawn = RandomViews(
        policy,
        seed=config.seed,
        stage=run.stage,
        num_views=num_views,
        alpha=config.alpha,
        generated=config.generated,
        by_side=config.num_globals is None and config.views_per_side > 1,
    )
    choose: Chooser = LowestIouPairs(drawn) if config.select == "lowest_iou" else drawn
    return PairSource(source.loader, choose, policy, run.device, _preview(config), turns=True)


def views_policy(config: PretrainConfig) -> Policy:
    """The config's policy at its side, with its joint law and, for multi-crop, its candidates.

    Raises `ConfigError` where the policy's views do not fit the framework.
    """
    policy = load_policy(config.settings.policy).with_side(config.side_px)
    if config.joint_area is not None:
        policy = policy.with_joint(JointLaw(parameter="area", beta=config.joint_area))
    sides = [policy.side_of(law) for law in range(len(policy.views))]
    if config.num_globals is None:
        if len(set(sides)) > 1:
            raise ConfigError(
                f"policy '{policy.name}' gives views of {' and '.join(map(str, sorted(set(sides))))} px, and "
                f"{config.framework} compares views of one side; take --framework dino or swav, or another policy"
            )
        return policy
    large = config.num_globals
    if len(sides) != policy.num_views or len(sides) < large or len(set(sides[:large])) > 1:
        raise ConfigError(
            f"policy '{policy.name}' gives {policy.num_views} views by laws for {', '.join(map(str, sides))} px, and "
            f"{config.framework} needs a law for each, the first {large} of one side; take another policy or "
            "--num-globals"
        )
    if config.select in BY_LOSS:
        assert config.views is not None
        num_small = 2 * num_small_views(policy, large) if config.small_views is None else config.small_views
        if large != 2 or num_small < num_small_views(policy, large):
            raise ConfigError(
                f"select is '{config.select}' with num_globals {large} and small_views {num_small}: it chooses 2 large "
                f"views, and {num_small_views(policy, large)} small ones as policy '{policy.name}' has them"
            )
        if config.views == 2 and num_small == num_small_views(policy, large):
            raise ConfigError(f"views is 2 and small_views is {num_small}: these are all used, nothing is to choose")
        return with_candidates(policy, num_large=config.views, num_small=num_small, large_laws=large)
    return policy


def num_small_views(policy: Policy, num_large: int) -> int:
    """Small views of a row under a multi-crop policy."""
    return policy.num_views - num_large


def check_sides(backbone: Backbone, source: PairSource) -> None:
    """`ConfigError` unless the backbone takes views of every side that the source renders."""
    if backbone.kind != "vit":
        return
    patch_px = int(cast(tuple[int, int], backbone.trunk.patch_embed.patch_size)[0])
    policy = source.policy
    sides = {policy.side_of(law) for law in range(len(policy.views))}
    preview = source.preview.side_px if isinstance(source.preview, Preview) else None
    for side in sorted({*sides, *(() if preview is None else (preview,))}):
        if side % patch_px:
            raise ConfigError(
                f"views of {side} px are not tiled by the {patch_px} px patches of '{backbone.name}'; take a multiple: "
                "--select-side-px, --side-px, or a policy file with sides of its own"
            )


def create_picker(config: PretrainConfig, run: Run) -> Picker | None:
    """Who chooses or weighs the views of every batch before the step; None where they are trained on as they come."""
    if config.weights == "quality":
        return weigh
    if config.select not in BY_LOSS:
        return None
    rule, preview = cast(Rule, config.select), _preview(config)
    log = None if config.log_views is None else ViewLog(run.folder, config.log_views)
    if config.num_globals is None:
        return HardViews(rule, preview, config.agreement_every, log)
    assert config.views is not None and config.comparisons is not None
    return HardCrops(
        num_large=config.views,
        num_chosen=num_small_views(load_policy(config.settings.policy), config.num_globals),
        comparisons=config.comparisons,
        seed=config.seed,
        stage=run.stage,
        rule=rule,
        preview=preview,
        log=log,
    )


def weigh(framework: Framework, batch: ViewBatch, stepper: Stepper) -> ViewBatch:
    """The batch with weights by the quality of its pairs (GenView, eq. 13)."""
    assert batch.quality is not None, "load_pairs was asked for it"
    return replace(batch, weights=quality_weights(batch.quality))


def _preview(config: PretrainConfig) -> Preview | None:
    if config.select_side_px is None and not config.select_static_colour:
        return None
    return Preview(config.select_side_px, config.select_static_colour)
