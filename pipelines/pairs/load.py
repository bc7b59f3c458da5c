"""Pairs for any trainer: viewkit's own reads them here, and so can yours (docs/other-trainers.md)."""

from collections.abc import Mapping
from typing import Literal, get_args

from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.pairs.column import has_scores, require_scores
from viewkit.pipelines.pairs.filter import consistency_threshold_of
from viewkit.pipelines.pairs.generated import GENVIEW, DrawnFrom, GeneratedViews, generated_column
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.pairs.options import ORACLE_SHARE
from viewkit.pipelines.pairs.plan import RecipeSampler
from viewkit.pipelines.pairs.random import RandomPairs
from viewkit.pipelines.pairs.rules import Limits
from viewkit.pipelines.pairs.same_policy import check_same_policy
from viewkit.pipelines.pairs.samples import QUALITY, Sample, SampleReader, annotation_of, load_image
from viewkit.pipelines.pairs.selections import SELECT, check_placebo, check_same_image, names_of
from viewkit.pipelines.pairs.source import PairSource
from viewkit.pipelines.pairs.stored import StoredPairs
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.loader import Loader
from viewkit.shards.row import Row

Weights = Literal["none", "quality"]

LOOKED_AT = 500
"""Images, those with the smallest key hashes, of which one must be annotated for the oracle."""


def load_pairs(
    dataset: Dataset,
    *,
    policy: str,
    side_px: int,
    batch_size: int,
    select: str = "random",
    pairs: str = PAIRS,
    k_sc: float | None = None,
    filter_share: float | None = None,
    k_al: float | None = None,
    oracle_share: float | None = None,
    placebo: bool = False,
    alpha: float = 0.0,
    generated: GeneratedViews = "one",
    weights: Weights = "none",
    genview: str = GENVIEW,
    quality: str = QUALITY,
    other_policy: bool = False,
    epochs: int = 1,
    steps: int | None = None,
    seed: int = 0,
    stage: str = "pretrain",
    device: str = "cpu",
    rank: int = 0,
    world_size: int = 1,
) -> PairSource:
    """Batches of rendered, normalised pairs; ``source.epoch(e)`` gives `ViewBatch`es, the same ones for the same seed.

    policy: a policy's name or TOML file. select: pairs sampled anew each epoch ("random"), or those of the candidates
        in column `pairs` that a selection of `SELECT` keeps; k_sc, filter_share, k_al, oracle_share and placebo as in
        `viewkit pretrain`.
    alpha: probability that one view of the two, or with generated "both" both, is cropped from the generated image
        (column `genview`); 0 leaves stored pairs as they were scored.
    weights: with "quality" the batches carry q of their pairs (column `quality`), from which `losses.row_weights`
        computes weights.
    genview, quality: names of these columns. Stored pairs that are cropped from generated images take no other genview
        with alpha above 0.
    other_policy: take stored pairs that were sampled by another policy than `policy`, which is refused else.
    epochs: of the whole training, or steps in their place, over which a policy's ceiling on overlaps moves.
    rank, world_size: of this process; every rank gets other rows and the same number of steps.
    Raises `DataError` for a missing column or one made from other images, `ConfigError` for fewer rows than a batch.
    """
    check_select(select, weights)
    check_placebo(select, placebo)
    check_same_image(select, alpha)
    if generated not in get_args(GeneratedViews):
        raise ConfigError(
            f"generated is '{generated}'; in a pair it must be one of {', '.join(get_args(GeneratedViews))}"
        )
    loader = open_loader(
        dataset,
        select=select,
        pairs=pairs,
        alpha=alpha,
        weights=weights,
        genview=genview,
        quality=quality,
        batch_size=batch_size,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )
    spec = load_policy(policy).with_side(side_px)
    if spec.iou is not None and alpha:
        raise ConfigError(
            f"policy '{spec.name}' bounds overlaps and alpha is {alpha}: crops of different images have no overlap; "
            "set alpha to 0"
        )
    rounds = epochs if steps is None else -(-steps // loader.steps_per_epoch)
    random = RandomPairs(spec, seed=seed, stage=stage, alpha=alpha, generated=generated, rounds=rounds)
    selection = SELECT[select]
    sampler: RecipeSampler = random
    if selection.stored:
        if not other_policy:
            check_same_policy(dataset, pairs, load_policy(policy))
        limits = Limits(
            k_sc=consistency_threshold_of(dataset, pairs, k_sc, filter_share) if selection.filters else 0.0,
            k_al=k_al,
            oracle_share=ORACLE_SHARE if oracle_share is None else oracle_share,
        )
        sampler = StoredPairs(
            random,
            select,
            limits,
            placebo=placebo,
            quality=weights == "quality",
            candidates=candidates_of(dataset, pairs),
        )
    return PairSource(loader, sampler, spec, device, cycle_generated=not selection.stored)


def check_select(select: str, weights: Weights = "none") -> None:
    """`ConfigError` for a selection that gives no pairs here, and for weights by quality of pairs whose quality nobody
    measured."""
    if select not in SELECT or SELECT[select].chooses:
        names = ", ".join(name for name, each in SELECT.items() if not each.chooses)
        raise ConfigError(f"select is '{select}'; it must be one of {names}")
    if weights == "quality" and not SELECT[select].stored:
        raise ConfigError(
            f"weights is 'quality' and select is '{select}': the column 'quality' rates stored pairs only; set "
            f"select to {names_of(lambda each: each.stored)} ('viewkit pretrain' rates fresh pairs itself)"
        )


def open_loader(
    dataset: Dataset,
    *,
    select: str = "random",
    pairs: str = PAIRS,
    alpha: float = 0.0,
    weights: Weights = "none",
    genview: str = GENVIEW,
    quality: str = QUALITY,
    batch_size: int,
    seed: int,
    rank: int = 0,
    world_size: int = 1,
) -> Loader[Sample]:
    """The loader of the columns that such pairs need, after checking that they belong together; see `load_pairs`."""
    check_select(select, weights)
    selection = SELECT[select]
    columns = ["images"]
    if selection.stored:
        columns.append(pairs)
        if "scores" in selection.needs:
            require_scores(dataset.column(pairs))
        genview = (
            stored_genview(dataset.column(pairs).identity.inputs, pairs, genview if alpha > 0 else None) or genview
        )
    if alpha > 0 or (selection.stored and has_generated_views(dataset, pairs)):
        columns.append(genview)
    if weights == "quality":
        columns.append(quality)
    for column in columns:
        dataset.check_inputs(column)
    if weights == "quality":
        check_quality(dataset, pairs, quality)
    if "objects" in selection.needs:
        check_annotated(dataset, select)
    return Loader(
        dataset,
        columns,
        batch_size=batch_size,
        seed=seed,
        transform=SampleReader(
            pairs=pairs,
            genview=genview,
            quality=quality,
            has_scores=not selection.stored or has_scores(dataset.column(pairs)),
            annotated="objects" in selection.needs,
        ),
        rank=rank,
        world_size=world_size,
    )


def check_annotated(dataset: Dataset, select: str) -> None:
    """`DataError` where none of `LOOKED_AT` images has annotated objects that fit it."""
    images = dataset.column("images")
    keys = smallest(images.keys(), LOOKED_AT)
    for key in keys:
        fields = images.fields(images.place_of[key])
        if annotation_of(Row(key, fields), load_image(fields)) is not None:
            return
    raise DataError(
        f"select is '{select}' and none of {len(keys)} images has annotated objects that fit it; pack images with a "
        "KEY.json that lists 'objects', and KEY.mask.png where there are masks (docs/audit.md)"
    )


def stored_genview(inputs: Mapping[str, str], pairs: str, asked: str | None) -> str | None:
    """The column of generated views that stored views are cropped from; None where there is none.

    inputs: of the column of pairs. asked: the column that further views are to be cropped from. `DataError` where it is
    another one: a row has one generated image.
    """
    made_with = generated_column(inputs)
    if None not in (made_with, asked) and made_with != asked:
        raise DataError(
            f"column '{pairs}': its views are cropped from '{made_with}', and alpha above 0 asks for views of "
            f"'{asked}'; set --genview {made_with}, --alpha 0, or 'viewkit score' other pairs with --genview {asked}"
        )
    return made_with


def has_generated_views(dataset: Dataset, pairs: str = PAIRS) -> bool:
    """Whether some of the stored views are cropped from generated images."""
    return generated_column(dataset.column(pairs).identity.inputs) is not None


def candidates_of(dataset: Dataset, pairs: str) -> DrawnFrom:
    """Which of the stored views were to be cropped from generated images; `rescore` copies the recipes of others."""
    config = dataset.column(pairs).identity.config
    found: DrawnFrom = config.get("candidates", "mixed" if has_generated_views(dataset, pairs) else "original")
    return found


def check_quality(dataset: Dataset, pairs: str, quality: str = QUALITY) -> None:
    """`DataError` unless the column of qualities rates the very views whose recipes `pairs` holds."""
    if not rates(dataset, pairs, quality):
        raise DataError(
            f"{dataset.path / quality}: it rates other pairs than those in column '{pairs}'; delete "
            f"{dataset.path / quality} and rerun 'viewkit quality', or name another one with --quality-column"
        )


def rates(dataset: Dataset, pairs: str, quality: str = QUALITY) -> bool:
    """Whether the column of qualities rates the very views whose recipes `pairs` holds.

    `rescore` copies recipes, and names the column it took them from among its inputs as "similarities".
    """
    column = dataset.column(pairs)
    rated = dataset.column(quality).identity.inputs.values()
    return bool({column.digest, *column.earlier, column.identity.inputs.get("similarities")} & set(rated))
